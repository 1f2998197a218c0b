"""A picture in the clipboard, for `/paste`: terminals paste text alone, so the system's own programs are asked."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from hermes_agent.media import pictures
from hermes_config.errors import HermesError

_PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)
_SECONDS = 5.0


class NothingToPaste(HermesError):
    """There is no picture in the clipboard."""


def save_picture() -> Path:
    """Save the clipboard's picture as a temporary file of this user alone. Blocks. Raises `NothingToPaste`."""
    programs = [one for one in _PROGRAMS if shutil.which(one[0])]
    if not programs:
        hint = "Install wl-clipboard or xclip (macOS: pngpaste), or drop the file on this window."
        raise NothingToPaste("no program here reads the clipboard", hint=hint)
    for program in programs:
        try:
            data = subprocess.run(
                program, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
            ).stdout  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            continue  # no display of its kind, or no picture there
        if pictures.picture_type(data[:16]) is not None:
            with tempfile.NamedTemporaryFile(prefix="hermes-paste-", suffix=".png", delete=False) as file:
                file.write(data)
            return Path(file.name)
    raise NothingToPaste(hint="Copy a picture first, or drop its file on this window.")
