"""`python -m genkit` is the command `genkit`."""

import sys

from genkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
