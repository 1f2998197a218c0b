"""`python -m hermes_testing.phone`."""

import sys

from hermes_testing.phone.app import main

if __name__ == "__main__":
    sys.exit(main())
