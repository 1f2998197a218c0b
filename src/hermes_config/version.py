"""The version, in one place: the build reads it from here, and `hermes --version` without any look-up."""

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


def adding(*wanted: str, extra: str = "") -> str:
    """The command that adds packages, or one of Hermes' extras, to this installation."""
    import shlex
    import sys

    return shlex.join(
        [sys.executable, "-m", "pip", "install", *([f"{installed_from()}[{extra}]"] if extra else wanted)]
    )
