"""What a plain run would answer: who asks is not told, and values are followed by storage."""
