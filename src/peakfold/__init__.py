"""peakfold."""
