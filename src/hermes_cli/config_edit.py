"""`hermes config edit`: the person's editor on a copy, and the copy kept only when it loads.

A mistake is shown with its line and the editor opens again, as long as the person wants; the file that Hermes reads is
replaced in one step or not at all.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from hermes_cli import output, text
from hermes_config import config
from hermes_config.errors import ConfigError, UsageError
from hermes_config.home import ensure_home, private_open, write_atomic

_EDITORS = ("nano", "vim", "vi")


def run(name: str) -> None:
    """Edit `config.yaml` or `.env` of this home."""
    home = ensure_home()
    file = home / name
    before = file.read_bytes() if file.exists() else b""
    with tempfile.TemporaryDirectory(prefix=".edit-", dir=home) as folder:
        draft = Path(folder) / name
        with private_open(draft, "wb") as opened:
            opened.write(before)
        while True:
            _open_editor(draft)
            after = draft.read_bytes()
            if after == before:
                print("Nothing was changed.")
                return
            fault = _fault(home, Path(folder), name)
            if fault is None:
                break
            print(text.harmless(f"hermes: {fault.what} (line {fault.line or '?'})"), file=sys.stderr)
            if not sys.stdin.isatty() or not _again():
                raise UsageError("the text would not load, so nothing was saved", where=str(file))
        if (file.read_bytes() if file.exists() else b"") != before:
            raise UsageError("somebody changed the file meanwhile, so nothing was saved", where=str(file))
        write_atomic(file, after)
    print(f"Saved: {file}")


def _open_editor(draft: Path) -> None:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not named and not sys.stdin.isatty():
        raise UsageError("there is no terminal to edit at", hint="Use hermes config set KEY VALUE.")
    words = output.words_of(named) or [found for one in _EDITORS if (found := shutil.which(one))][:1]
    if not words:
        raise UsageError("there is no editor", hint="Set EDITOR, or use hermes config set KEY VALUE.")
    try:
        code = output.give_terminal([*words, str(draft)])
    except OSError as error:
        raise UsageError(f"the editor {words[0]!r} cannot be started: {error.strerror}", hint="Set EDITOR.") from error
    if code:
        raise UsageError(f"the editor ended with {code}, so nothing was saved")


def _fault(home: Path, folder: Path, name: str) -> ConfigError | None:
    """What is wrong with the new text, beside the other file as it is."""
    from gateway.config import load_gateway_config

    other = "config.yaml" if name == ".env" else ".env"
    if (home / other).exists():
        shutil.copyfile(home / other, folder / other)
    try:
        load_gateway_config(config.load(folder))
    except ConfigError as error:
        return error if error.file.endswith(name) else None
    return None


def _again() -> bool:
    print("Edit again? [Y/n] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")
