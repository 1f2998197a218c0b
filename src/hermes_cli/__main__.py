"""`python -m hermes_cli` is `hermes`."""

from hermes_config.version import forget_working_folder

if __name__ == "__main__":
    forget_working_folder()

    from hermes_cli.main import run

    run()
