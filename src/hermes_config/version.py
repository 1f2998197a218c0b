"""The version, in one place, and this installation: the build reads the version from here, without any look-up."""

VERSION = "0.1.0"


def installed_from() -> str:
    """The folder or wheel from which this Hermes was installed, as pip recorded it; else its name."""
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    written = metadata.distribution("hermes-gateway").read_text("direct_url.json")
    url = str(json.loads(written)["url"]) if written else ""
    return url2pathname(urlsplit(url).path) if url.startswith("file:") else url or "hermes-gateway"


def module_command(module: str) -> list[str]:
    """The command line that runs a module of this installation.

    -P: Python would look for every module in the working folder first, and there a command may have written a
    `json.py`, which would run outside its sandbox.
    """
    import sys

    return [sys.executable, "-P", "-m", module]


def forget_working_folder() -> None:
    """Import nothing from the working folder from now on, although Python was started by a person with -m alone."""
    import sys
    from pathlib import Path

    source = str(Path(__file__).parents[1])
    if not sys.flags.safe_path and sys.path[:1] != [source]:
        del sys.path[:1]


def adding(*wanted: str, extra: str = "") -> str:
    """The command that adds packages, or one of Hermes' extras, to this installation."""
    import shlex
    import sys

    return shlex.join(
        [sys.executable, "-m", "pip", "install", *([f"{installed_from()}[{extra}]"] if extra else wanted)]
    )
