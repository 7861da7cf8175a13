"""`python -m peakfold`: the command line."""

from peakfold.cli import main

if __name__ == "__main__":
    main()
