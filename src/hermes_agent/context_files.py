"""What a project tells an agent about itself: the first of its context files.

In this order, first match only: `.hermes.md` or `HERMES.md`, here or in a folder above as far as the root of the git
repository; then, in this folder, `AGENTS.md`, `CLAUDE.md`, `.cursorrules` or `.cursor/rules/*.mdc`. A file counts when
it is a regular one that lies inside the project: a link that leads out of it, or to a file that may hold secrets, is
not followed, for the project may be a stranger's, and a command that may not read a file could still link to it. Long
files are shown by head and tail; a file that looks like orders to the model is replaced by a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.suspicion import suspicion
from hermes_agent.tools import descriptors
from hermes_config import secret_files
from hermes_config.limits import DEFAULTS, Limits

_UPWARDS = (".hermes.md", "HERMES.md")
_HERE = ("AGENTS.md", "agents.md", "CLAUDE.md", "claude.md", ".cursorrules")
_HEAD, _TAIL = 0.7, 0.2


def read(workdir: Path, config: Mapping[str, Any], *, limits: Limits = DEFAULTS) -> str:
    """The project's context as a part of the system text; empty when there is none."""
    root = _git_root(workdir)
    for found in _candidates(workdir, root):
        texts = [(path, text) for path in found if (text := _text(path, root or workdir, limits)).strip()]
        if texts:
            chars = _chars(config, limits)
            return "\n\n".join(_shown(path, text, root or workdir, chars) for path, text in texts)
    return ""


def shortened(text: str, chars: int, *, name: str = "") -> str:
    """Head and tail of a text that is longer than that, and a line that says what was left out."""
    if len(text) <= chars:
        return text
    head, tail = text[: int(chars * _HEAD)], text[len(text) - int(chars * _TAIL) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n\n[… {left_out:,} characters{f' of {name}' if name else ''} left out …]\n\n{tail}"


def _chars(config: Mapping[str, Any], limits: Limits) -> int:
    """`context_file_max_chars` of existing homes, else the table of limits."""
    chosen = config.get("context_file_max_chars")
    return chosen if isinstance(chosen, int) and chosen >= 500 else limits.context_file_chars


def _candidates(workdir: Path, root: Path | None) -> Iterator[list[Path]]:
    folders = [workdir]
    if root is not None:
        folders += [folder for folder in workdir.parents if folder == root or root in folder.parents]
    for folder in folders:
        for name in _UPWARDS:
            yield [folder / name]
    for name in _HERE:
        yield [workdir / name]
    yield sorted((workdir / ".cursor" / "rules").glob("*.mdc"))


def _git_root(workdir: Path) -> Path | None:
    for folder in (workdir, *workdir.parents):
        if (folder / ".git").exists():
            return folder
    return None


def _text(path: Path, project: Path, limits: Limits) -> str:
    """Of a regular file inside the project; empty for anything else, and for what cannot be read."""
    try:
        real, inside = path.resolve(strict=True), project.resolve()
        if not real.is_relative_to(inside) or secret_files.is_secret(real, user_home=Path.home(), root=inside):
            return ""
        with descriptors.opened(real.parent) as folder:
            descriptor = folder.open(real.name)
    except (OSError, RuntimeError):  # not there, not ours to read, no plain file, or a circle of links
        return ""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        most = limits.context_file_bytes
        content = file.read(most)
        if status.st_size > most:
            file.seek(status.st_size - most // 4)
            content = content[: most - most // 4] + b"\n" + file.read(most // 4)
    return content.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\0", "")


def _shown(path: Path, text: str, project: Path, chars: int) -> str:
    name = str(path.relative_to(project)) if path.is_relative_to(project) else path.name
    body = shortened(text.strip(), chars, name=name)
    why = suspicion(body)
    if why is not None:
        body = f"[{name} was left out: {why}. Tell the person, who may want to look at it.]"
    return f"## {name}\n\n{body}"
