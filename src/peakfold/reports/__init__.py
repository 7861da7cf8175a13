"""Results -> text, JSON and pictures: pure functions that print nothing and choose nothing."""
