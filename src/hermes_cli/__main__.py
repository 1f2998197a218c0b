"""`python -m hermes_cli` is `hermes`."""

from hermes_cli.main import run

if __name__ == "__main__":
    run()
