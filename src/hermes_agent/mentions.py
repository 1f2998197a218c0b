"""Files mentioned in a message: `@notes.md`, `@src/app.py:10-20`, `@"two words.txt"`, `@src/`; and `@diff`.

The current text of the files is added below the person's own text, fenced and named; a picture becomes a part of the
message. `offers` completes such a name while a person types it. Only messages typed on this machine are expanded; a
chat message is never searched for names.

A name that is not a file stays a word: people also write `@ada`. If a file exists but cannot be attached, the whole
message is refused with one line, nothing is sent, and the person decides. A relative name stays inside the working
folder, also through links. A file that may hold secrets is refused, because `read_file` asks a person first.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.execution.base import ShellCommand
from hermes_agent.execution.executor import Executor
from hermes_agent.media import pictures
from hermes_agent.text import counted, fenced
from hermes_agent.tools import descriptors, output, paths
from hermes_agent.tools.base import FileContext
from hermes_agent.tools.environment import child_environment
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_agent.prompt.transcript import Content

_HEADING = "\n\n[Named with @ above, as it was when this was sent]\n"
_NAMED = re.compile(r"""(?<![^\s(\[{'"])@(file:|folder:)?(?:"([^"\n]+)"(:\d+(?:-\d+)?)?|([^\s"]+))""")
_LINES = re.compile(r"(.+):(\d+)(?:-(\d+))?")
_ENDS = ".,;:!?)]}'…"
"""Punctuation that ends a sentence rather than a name."""
_TITLE = re.compile(r"^(.+) \((folder, [^)\n]*|picture, [^)\n]*|[^)\n]*lines?[^)\n]*|empty)\)$", re.MULTILINE)
_FENCED = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_LOOKED_AT = 200
"""How many names of one message are looked up: a long paste may be full of @."""
_ENTRIES = 200
_OFFERED, _READ = 50, 5_000
_PICTURE_NAMES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_PICTURES, _PICTURE_BYTES = 10, 3_500_000
"""The most pictures of a message, and the largest: as base64 it is below the providers' limit of 5 MB."""
_MARKS = ("@file:", "@folder:", "@")


class FileRefused(HermesError):
    """A file mentioned with @ cannot be attached."""


def whole(text: str, here: FileContext) -> Content:
    """The message with its mentioned files: text, or a list of parts if there are pictures among them.

    Blocks on the file system; raises `FileRefused`.
    """
    if "@" not in text or _HEADING in text:  # a repeated message has its files already
        return text
    found: dict[str, str] = {}
    shown: list[dict[str, Any]] = []
    room = here.db.limits.named_files_chars
    for match, _ in zip(_NAMED.finditer(text), range(_LOOKED_AT), strict=False):
        word = _git_word(match)
        name = word or _existing(match, here)
        if name is None or name in found:
            continue
        found[name] = _changes(name, here, most=room) if word else _block(name, here, shown, most=room)
        room -= len(found[name])
    words = f"{text}{_HEADING}{''.join(found.values())}".rstrip("\n") if found else text
    return [{"type": "text", "text": words}, *shown] if shown else words


def picture_names(paths: Sequence[str]) -> str:
    """Mentions of these pictures; a missing file is then an error."""
    return "".join(f' @file:"{path}"' for path in paths)


def dropped(text: str) -> str:
    """What a terminal pastes when a picture is dropped on it, as a mention; any other text as it is."""
    said = text.strip()
    named = re.sub(r"\\(.)", r"\1", said.removeprefix("file://").strip("'\""))
    if "\n" in said or '"' in named or not named.startswith("/") or not named.lower().endswith(_PICTURE_NAMES):
        return text
    return f'@"{named}" ' if Path(named).is_file() else text


def words(text: str) -> str:
    """The person's own text, without the attached files."""
    return text.partition(_HEADING)[0]


def files(text: str) -> list[str]:
    """The attached files, each as `notes.md (3 lines)`."""
    titles = _FENCED.sub("", text.partition(_HEADING)[2])
    return [f"{name} ({size})" for name, size in _TITLE.findall(titles)]


@dataclass(frozen=True, slots=True)
class MentionOffer:
    """A completion for a partly typed name."""

    text: str
    """The completed word, with its @."""
    name: str
    is_folder: bool


def offers(word: str, workdir: Path, environ: Mapping[str, str]) -> list[MentionOffer]:
    """The completions of a partly typed word. Blocks on the file system."""
    mark = next((one for one in _MARKS if word.startswith(one)), "")
    typed = word[len(mark) :].removeprefix('"')
    folder, slash, begun = typed.rpartition("/")
    found = []
    for name, is_folder in _entries(workdir / paths.expanded(f"{folder}{slash}", environ), begun):
        if is_folder or mark != "@folder:":
            path = f"{folder}{slash}{name}{'/' if is_folder else ''}"
            if mark == "@" and is_git_word(path):
                path = f"./{path}"
            if mark and " " in path:
                path = f'"{path}' if is_folder else f'"{path}"'  # a folder's name may continue
            found.append(MentionOffer(f"{mark}{path}", f"{name}{'/' if is_folder else ''}", is_folder))
    if mark == "@":
        found += [MentionOffer(f"@{one}", one, False) for one in GIT_WORDS if begun and one.startswith(typed)]
    return found[:_OFFERED]


def _entries(where: Path, begun: str) -> list[tuple[str, bool]]:
    """(name, is a folder) of the entries that begin so; hidden ones only if the typed part begins with a dot."""
    found = []
    try:
        with os.scandir(where) as entries:
            for _, entry in zip(range(_READ), entries, strict=False):
                hidden = entry.name.startswith(".") and not begun.startswith(".")
                if entry.name.lower().startswith(begun.lower()) and not hidden:
                    found.append((entry.name, entry.is_dir()))
    except (OSError, ValueError):  # a missing or unreadable folder, or an invalid name
        return []
    return sorted(found)


# -- which file is meant ---------------------------------------------------------------------------------------


def _existing(match: re.Match[str], here: FileContext) -> str | None:
    """The name, with its line range, of an existing file or folder; None for an ordinary word."""
    mark, quoted, lines, plain = match.groups()
    if quoted:
        candidates = [f"{quoted}{lines or ''}"]
    else:
        bare = plain.rstrip(_ENDS)
        candidates = [plain[:end] for end in range(len(bare), len(plain) + 1) if plain[:end].strip("./~")]
    for candidate in candidates:
        if any(_is_there(path, here) for path in (candidate, _parts(candidate)[0])):
            return candidate
    if mark:
        raise FileRefused(f"there is no {mark[:-1]} {candidates[0] if candidates else ''}", where=str(here.workdir))
    return None


def _git_word(match: re.Match[str]) -> str | None:
    """The Git word of a mention (`diff`, `staged`, `git:3`); a file of that name is `@./diff` or `@file:diff`."""
    mark, _, _, plain = match.groups()
    bare = (plain or "").rstrip(_ENDS)
    return bare if not mark and is_git_word(bare) else None


def _is_there(name: str, here: FileContext) -> bool:
    try:
        return os.path.lexists(here.workdir / paths.expanded(name, here.environ))
    except (OSError, ValueError):  # not a valid file name
        return False


def _parts(name: str) -> tuple[str, int, int]:
    """(path, first line, last line); zeros stand for the whole file, or for its end."""
    found = _LINES.fullmatch(name)
    if found is None:
        return name, 0, 0
    first = int(found[2])
    return found[1], first, int(found[3] or first)


# -- attached text ---------------------------------------------------------------------------------------------


def _block(name: str, here: FileContext, shown: list[dict[str, Any]], *, most: int) -> str:
    """The text of a file or folder. A picture is added to `shown`."""
    path, first, last = (name, 0, 0) if _is_there(name, here) else _parts(name)
    try:
        place = paths.locate(path, here)
        _check_attachable(path, place, here)
        if place.is_folder:
            return _folder(path, place, most=most)
        may_be_picture = path.lower().endswith(_PICTURE_NAMES)
        data = paths.read_bytes(place, most=_PICTURE_BYTES if may_be_picture else here.db.limits.read_file_bytes)
    except paths.ToolRefused as error:
        raise FileRefused(f"@{path}: {error.what}", hint=error.hint) from error
    if may_be_picture and (mime := pictures.picture_type(data[:16])):
        if len(shown) == _PICTURES:
            raise FileRefused(f"@{path} is one picture too many: a message takes {_PICTURES}")
        shown.append(pictures.part(data, mime))
        return f"\n{path} (picture, {len(data):,} bytes)\n"
    if output.is_binary(data):
        raise FileRefused(f"@{path} is not text", hint=f"To only mention it, write it without the @: {path}.")
    return _file(path, output.clean(data.decode("utf-8-sig", "replace")), first, last, most=most)


def _changes(word: str, here: FileContext, *, most: int) -> str:
    try:
        said = git_text(word, here, most=most)
    except paths.ToolRefused as error:
        raise FileRefused(f"@{word}: {error.what}", hint=error.hint) from error
    return _file(word, output.clean(said), 0, 0, most=most, kind="diff")


def _check_attachable(path: str, place: paths.FilePlace, here: FileContext) -> None:
    if place.status is None:
        raise FileRefused(f"@{path} is a broken link")
    if paths.is_private(place, here):
        raise FileRefused(
            f"@{path} may hold secrets, so it is not attached",
            hint="Name it without the @: then Hermes asks you before it reads the file.",
        )
    relative = not path.startswith(("/", "~"))
    if relative and not place.real.is_relative_to(os.path.realpath(here.workdir)):
        raise FileRefused(f"@{path} leads out of {here.workdir}", hint="Give its whole path to attach it.")


def _file(path: str, text: str, first: int, last: int, *, most: int, kind: str = "") -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    if not lines:
        return f"\n{path} (empty)\n"
    if first and (first > len(lines) or last < first):
        raise FileRefused(f"@{path} has {counted(len(lines), 'line')}; {first}-{last} is outside it")
    wanted = lines[first - 1 : last] if first else lines
    size = f"lines {first}-{first - 1 + len(wanted)} of {len(lines):,}" if first else counted(len(lines), "line")
    body = "\n".join(wanted)
    if len(body) > most:
        raise FileRefused(
            f"@{path} is too long to attach: {len(body):,} characters, and {max(most, 0):,} still fit",
            hint=f"Name some of its lines (@{path}:1-200), or ask for it without the @.",
        )
    kind = kind or Path(path).suffix[1:]
    return f"\n{path} ({size})\n{fenced(body, kind if kind.isalnum() else '')}\n"


def _folder(path: str, place: paths.FilePlace, *, most: int) -> str:
    try:
        with descriptors.opened(place.real) as folder:
            names = [f"{name}/" if is_folder else name for name, is_folder in folder.entries()]
    except OSError as error:
        raise FileRefused(f"@{path} cannot be read: {error.strerror}") from error
    more = [f"… and {len(names) - _ENTRIES:,} more"] if len(names) > _ENTRIES else []
    body = output.clean("\n".join([*names[:_ENTRIES], *more]))
    if len(body) > most:
        raise FileRefused(f"@{path} does not fit: the message is full")
    return f"\n{path} (folder, {len(names):,} inside)\n{fenced(body)}\n"


GIT_WORDS = ("diff", "staged", "git:1")
_SECONDS = 10.0
_MOST_COMMITS = 10
_LIST_BYTES = 1_000_000
# Git reports only a submodule's commit: to compare its files, git would run there with the submodule's own settings.
_PLAIN = (
    "--no-ext-diff", "--no-textconv", "--no-color", "--relative", "--ignore-submodules=dirty", "--submodule=short",
    "--no-renames",
)  # fmt: skip
_SAFE = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.quotePath=false",
    "log.showSignature=false", "protocol.allow=never", "safe.bareRepository=explicit",
)  # fmt: skip
_SAFE_ENVIRON = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


def is_git_word(word: str) -> bool:
    """Whether the word stands for output of Git."""
    return word in ("diff", "staged") or re.fullmatch(r"git:\d{1,4}", word) is not None


def git_text(word: str, here: FileContext, *, most: int) -> str:
    """The output of Git for a word. Raises `paths.ToolRefused`; blocks on a process."""
    command, naming = _git_command(word)
    safe = _without_filters(here)
    listed = _git((*safe, *command, *naming, "-z", "--", "."), here, most=_LIST_BYTES)
    names = dict.fromkeys(name.strip("\n") for name in listed.split("\0") if name.strip("\n"))
    hidden = [name for name in names if paths.is_private(paths.locate(f"./{name}", here), here)]
    left_out = [f":(exclude,literal){name}" for name in hidden]
    said = _git((*safe, *command, "--", ".", *left_out), here, most=most)
    if hidden:
        files = (
            "1 file that may hold secrets is" if len(hidden) == 1 else f"{len(hidden)} files that may hold secrets are"
        )
        said = f"{said}[{files} left out]\n"
    return said


def _git_command(word: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The git command for a word, and flags that make git list file names instead."""
    if word.startswith("git:"):
        count = int(word.removeprefix("git:"))
        if not 1 <= count <= _MOST_COMMITS:
            raise paths.ToolRefused(f"@{word}: between 1 and {_MOST_COMMITS} commits can be attached")
        return ("log", f"--max-count={count}", "--patch", *_PLAIN), ("--name-only", "--format=")
    staged = ("--staged",) if word == "staged" else ()
    return ("diff", *staged, *_PLAIN), ("--name-only",)


def _without_filters(here: FileContext) -> tuple[str, ...]:
    """Options that disable every configured filter: git would run filters when it compares files with a commit."""
    listed = _git(("config", "-z", "--name-only", "--get-regexp", r"^filter\."), here, most=_LIST_BYTES, none=1)
    names = dict.fromkeys(key.removeprefix("filter.").rpartition(".")[0] for key in listed.split("\0") if key)
    if any("=" in name or "\n" in name for name in names):
        raise paths.ToolRefused(
            "this repository has a filter that cannot be switched off", hint="Look at its .git/config."
        )
    emptied = [f"filter.{name}.{key}" for name in names for key in ("clean=", "smudge=", "process=", "required=false")]
    return tuple(word for setting in emptied for word in ("-c", setting))


def _git(arguments: tuple[str, ...], here: FileContext, *, most: int, none: int = 0) -> str:
    """The output of a git command; `none` is an exit status that means "nothing found", not a failure."""
    environment = child_environment(here.environ, passed=(), identity={}, home=here.home) | _SAFE_ENVIRON
    safe = [word for setting in _SAFE for word in ("-c", setting)]
    run = Executor(here.home, here.config, here.db.limits)
    git = run.program("git", environment, here.workdir)
    if git is None:
        raise paths.ToolRefused("git cannot be run: it is not installed")
    command = ShellCommand((git, *safe, "--no-pager", *arguments), here.workdir, environment)
    options: dict[str, Any] = {"workspace": here.workdir, "seconds": _SECONDS, "ours": True}
    ran = asyncio.run(run.collect(command, most=most, with_errors=False, **options))
    if ran.cut:
        raise paths.ToolRefused(
            f"git's output is too long to attach: {max(most, 0):,} characters still fit",
            hint="Name the files that matter, or ask for it in words, without the @.",
        )
    if ran.status is None:
        raise paths.ToolRefused(f"git did not answer within {_SECONDS:.0f} seconds")
    if ran.status not in (0, none):
        # Run git again to read its errors, which would mix with its output otherwise.
        trouble = asyncio.run(run.collect(command, most=10_000, **options)).data
        git_error = _git_error(trouble.decode("utf-8", "replace").strip())
        raise paths.ToolRefused(git_error, hint="To only mention it, write it without the @.")
    return ran.data.decode("utf-8", "replace")


def _git_error(trouble: str) -> str:
    if "not a git repository" in trouble.lower():
        return "this folder is not in a Git repository"
    if "does not have any commits yet" in trouble:
        return "there is no commit yet"
    return f"git: {trouble.splitlines()[0][:200] if trouble else 'it failed without a message'}"
