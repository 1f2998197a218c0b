"""`python -m hermes_cli` is `hermes`."""

import sys

from hermes_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
