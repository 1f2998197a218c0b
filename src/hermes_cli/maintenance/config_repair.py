"""`hermes config repair`: makes config.yaml and `.env` load again without losing text.

The repair comments out lines that cannot be read, removes keys with invalid values, rewrites other encodings as UTF-8,
and moves aside everything else (the `gateway.json` of older homes, or a folder in place of a file). The old text is
saved beside the file. If YAML does not name the faulty line, the repair guesses it and checks that the rest loads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.config import load_gateway_config
from hermes_cli.framework import text
from hermes_config import config, dotenv, yaml_file
from hermes_config.errors import ConfigError
from hermes_config.home import ensure_home, write_atomic

_MOST_STEPS = 100
_LINES_BACK = 50  # YAML often notices a mistake only further down
_FILES = ("config.yaml", ".env")


def run() -> None:
    """Fix both files and print each step."""
    home = ensure_home()
    kept: dict[Path, Path] = {}
    comments: dict[Path, list[str]] = {}
    for _ in range(_MOST_STEPS):
        error = fault(home)
        if error is None:
            break
        file = Path(error.file)
        if file.parent != home:
            raise error
        if file.is_file() and file not in kept:
            kept[file] = config.free_name(file.with_name(f"{file.name}.bak"))
            write_atomic(kept[file], file.read_bytes())
        print(text.harmless(_fix(file, error, kept.get(file), comments.setdefault(file, []))))
    else:
        raise ConfigError("gave up after 100 repairs", file=str(home), hint="hermes config edit opens it.")
    for file, copy in kept.items():
        _keep_comments(file, comments[file])
        print(f"{file.name} loads now. The old text: {copy}")
    if not kept:
        print("config.yaml and .env load.")


def fault(home: Path) -> ConfigError | None:
    """Return the error that keeps the home's configuration from loading."""
    try:
        load_gateway_config(config.load(home))
    except ConfigError as error:
        return error
    return None


def _fix(file: Path, error: ConfigError, copy: Path | None, comments: list[str]) -> str:
    """Do one step and describe it. Lines that become comments are also put into `comments`."""
    if not file.is_file() or file.name not in _FILES:
        return _aside(file, error)
    if error.key:
        return _remove_key(file, error, copy)
    content = file.read_bytes()
    try:
        source = content.decode()
    except UnicodeDecodeError:
        written_in = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "cp1252"
        write_atomic(file, content.decode(written_in, "replace"))
        return f"{file.name} was rewritten as UTF-8; it seems to have been {written_in}"
    lines = source.split("\n")
    line = _at_fault(lines, file, error.line)
    if line is None:
        return _aside(file, error)
    lines[line] = "# " + "".join(mark if mark.isprintable() else " " for mark in lines[line])
    comments.append(lines[line])
    write_atomic(file, "\n".join(lines))
    return f"{file.name}, line {line + 1} is a comment now: {error.reason.removeprefix(f'{file.name}: ')}"


def _remove_key(file: Path, error: ConfigError, copy: Path | None) -> str:
    saved = config.unset_value(error.key)
    if saved is None:
        return _aside(file, error)
    if saved.backup is None:
        return f"{error.key} was removed: {error.reason}"
    saved.backup.unlink()  # an intermediate state; the old text is already saved
    return f"{error.key} was removed and {file.name} rewritten, without the comments in {copy}: {error.reason}"


def _keep_comments(file: Path, comments: list[str]) -> None:
    """Append the comments that a later step dropped when it had to rewrite the file."""
    if not file.is_file():
        return
    source = file.read_text()
    there = source.split("\n")
    if lost := [line for line in comments if line not in there]:
        write_atomic(file, "\n".join((source.removesuffix("\n"), *lost, "")))


def _at_fault(lines: list[str], file: Path, reported: int) -> int | None:
    """Find the line nearest to the reported one without which the rest loads, or loads further."""
    parse: Callable[..., object] = dotenv.parse if file.name == ".env" else yaml_file.parse
    start = min(reported, len(lines)) - 1
    for place in range(start, max(-1, start - _LINES_BACK), -1):
        rest = "\n".join([*lines[:place], "#", *lines[place + 1 :]])
        try:
            parse(rest, file=str(file))
        except ConfigError as error:
            if file.name != ".env" or error.line <= reported:
                continue
        return place
    return None


def _aside(file: Path, error: ConfigError) -> str:
    place = config.free_name(file.with_name(f"{file.name}.aside"))
    file.rename(place)
    return f"{file.name} was moved to {place}: {error.reason}"
