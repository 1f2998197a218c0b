"""Reads `<home>/config.yaml` and `<home>/.env`, and changes single keys and variables in them.

A home of hermes-agent loads unchanged. The keys that Hermes uses are checked, with file, line, key
and reason in the error; all others are carried in `Config.tree` and survive a save. Results are frozen and
shared: a second `load` costs two `stat` calls until one of the files changes.

- A variable of the environment wins over the same one in `.env`. A variable in `.env` is changed only when a person
  asks for it.
- A save never follows a failed read, and never writes a configuration that would not load. The one exception is
  taking out the key that keeps it from loading (`unset_value`).
- A running process uses `load_or_last_good`: after a broken edit it keeps the last good configuration and warns.

Two programs that save at the same moment notice each other by the file's stamp, and the later one starts over; an edit
by a third program between that check and the rename would be overwritten.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hermes_config import dotenv, schema, yaml_file
from hermes_config.errors import ConfigError
from hermes_config.home import advice, ensure_home, hermes_home, write_atomic
from hermes_config.limits import DEFAULTS
from hermes_config.recent import Recent
from hermes_config.schema import Problem, Value
from hermes_config.sections import AGENT_SETTINGS, Settings, table
from hermes_config.yaml_file import Edited

_SAVE_ATTEMPTS = 5
_DOCTOR = "hermes doctor says what to do."
_STRICT = ("state", "sessions", "budget", "limits")
"""Sections in which falling back to a default would do harm: another store, removed data, no limit."""


class Config(Settings):
    """The configuration of a home. Read-only; its `repr` holds no secrets."""

    home: Path
    tree: Mapping[str, Any]
    """All of config.yaml, read-only, including keys that Hermes does not use."""
    dotenv: Mapping[str, str]
    """The entries of `.env`."""
    problems: tuple[Problem, ...]
    """Invalid values, for which the last good value or the default is used."""

    def __init__(self, settings: Settings, **facts: Any) -> None:
        vars(self).update(vars(settings), **facts)

    def environ(self, name: str) -> str | None:
        """A variable of the environment or, if missing or empty there, of `.env`."""
        return os.environ.get(name) or self.dotenv.get(name)

    def database_url(self) -> str | None:
        """From `HERMES_DATABASE_URL`, then `state.database_url`; None stands for `<home>/state.db`."""
        return self.environ("HERMES_DATABASE_URL") or self.state.database_url

    def agent_settings(self) -> str:
        """The settings that an agent reads when it is created, as one text to compare. It may hold secrets."""
        return repr([self.tree.get("model"), *(getattr(self, name) for name in AGENT_SETTINGS)])

    def problem(self, *keys: str) -> Problem | None:
        """The first invalid value at or below one of these keys."""
        return next((one for one in self.problems if one.at_or_below(*keys)), None)

    def require(self, *keys: str) -> None:
        """Raise `ConfigError` if a value at or below one of these keys is invalid."""
        if (found := self.problem(*keys)) is not None:
            raise found.error()


class Saved(NamedTuple):
    """The result of a save. `backup`: the copy of the old text, if its layout could not be kept."""

    file: Path
    backup: Path | None


class _Stamp(NamedTuple):
    modified: int
    size: int
    inode: int


class _Remembered(NamedTuple):
    stamps: tuple[_Stamp | None, _Stamp | None] | None
    """None if a file could not be read; it is then read again each time, as nothing shows its correction."""
    outcome: Config | ConfigError
    last_good: Config | None


_remembered: Recent[Path, _Remembered] = Recent(DEFAULTS.config_homes)
_lock = threading.RLock()  # a log record made while it is held asks for the secrets, and they are here


def load(home: Path | None = None) -> Config:
    """Read the configuration of a home (by default the current one). Raises `ConfigError`; creates nothing."""
    outcome = _look(home or hermes_home()).outcome
    if isinstance(outcome, ConfigError):
        raise outcome.with_traceback(None)
    return outcome


def load_or_last_good(home: Path | None = None) -> tuple[Config, ConfigError | None]:
    """For a running process: the configuration; or the last good one, and the error in the new one."""
    found = _look(home or hermes_home())
    if isinstance(found.outcome, Config):
        return found.outcome, None
    if found.last_good is None:
        raise found.outcome.with_traceback(None)
    return found.last_good, found.outcome


def set_value(
    key: str | Sequence[str], value: Any, home: Path | None = None, *, check: Callable[[Config], object] | None = None
) -> Saved:
    """Set one key of config.yaml: dotted, or its parts where one has a dot. Comments and order of the rest are kept.

    `check` reads another package's settings from the new configuration; if it raises, nothing is saved.
    """
    path = key.split(".") if isinstance(key, str) else list(key)
    key = ".".join(path)
    file = (home or ensure_home()) / "config.yaml"
    if not all(name.strip() for name in path):
        raise ConfigError("is not a key: write section.name", file=str(file), key=key)

    def change(text: str) -> Edited:
        before = load(file.parent)  # a save never follows a failed read
        edited = _edited(text, path, value, file)
        after = _check_before_saving(edited.text, file, before.dotenv)
        if (problem := after.problem(key)) is not None:
            raise _not_saved(problem.error(line=0))
        if check is not None:
            _check_elsewhere(check, before, after, key)
        return edited

    saved = _save(file, change)
    assert saved is not None
    return saved


def set_values(values: Mapping[str, Any], home: Path | None = None) -> None:
    """Set several dotted keys of config.yaml in one write, so that no reader sees half of them; None removes a key."""
    file = (home or ensure_home()) / "config.yaml"

    def change(text: str) -> Edited | None:
        before = load(file.parent)
        edited = Edited(text, kept_layout=True)
        for key, value in values.items():
            path = key.split(".")
            if value is not None:
                step = _edited(edited.text, path, value, file)
            elif _holds(_document(edited.text, file).data, path):
                step = yaml_file.remove_in_text(edited.text, path, file=str(file))
            else:
                continue
            edited = Edited(step.text, edited.kept_layout and step.kept_layout)
        after = _check_before_saving(edited.text, file, before.dotenv)
        if (problem := after.problem(*values)) is not None:
            raise _not_saved(problem.error(line=0))
        return None if edited.text == text else edited

    _save(file, change)


def unset_value(key: str, home: Path | None = None) -> Saved | None:
    """Remove one dotted key from config.yaml, so that its default applies; None if the key is missing.

    This also works while the file does not load, because removing the wrong key is how it is corrected.
    """
    path = key.split(".")
    file = (home or ensure_home()) / "config.yaml"

    def change(text: str) -> Edited | None:
        source = _document(text, file)
        if not _holds(source.data, path):
            return None
        edited = yaml_file.remove_in_text(text, path, file=str(file))
        after = _fault(edited.text, file)
        if after is not None and _fault(text, file) is None:  # older errors may stay
            raise ConfigError(after.reason, file=str(file), key=after.key, hint="Nothing was saved.")
        return edited

    return _save(file, change)


def _edited(text: str, path: Sequence[str], value: Any, file: Path) -> Edited:
    """The text with one value changed. A bare value in place of a section (`model: demo`) becomes a key of it."""
    section, *below = path
    bare, found = table().bare_key(section), _document(text, file).data.get(section)
    if below and bare and found is not None and not isinstance(found, Mapping):
        for name in reversed(below[1:]):
            value = {name: value}
        path, value = path[:1], value if below == [bare] else {bare: found, below[0]: value}
    return yaml_file.set_in_text(text, path, value, file=str(file))


def _save(file: Path, change: Callable[[str], Edited | None]) -> Saved | None:
    """Write the text that `change` returns; if it returns None, do nothing and return None.

    If only a rewrite of the whole file can express the change (the key is an alias, or in a block of text),
    comments are lost and the old text is kept in `config.yaml.bak`.
    """
    for _ in range(_SAVE_ATTEMPTS):
        stamp, text = _read(file)
        edited = change(text)
        if edited is None:
            return None
        if _stamp(file) != stamp:
            continue
        backup = None if edited.kept_layout else free_name(file.with_name(f"{file.name}.bak"))
        if backup is not None:
            write_atomic(backup, text)
        write_atomic(file, edited.text)
        return Saved(file, backup)
    reason = f"{file.name} keeps changing while it is being saved"
    raise ConfigError(reason, file=str(file), hint="Nothing was saved; try again.")


def _holds(data: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def _fault(text: str, file: Path) -> ConfigError | None:
    try:
        _build(file.parent, _document(text, file), {})
    except ConfigError as error:
        return error
    return None


def add_variable(name: str, value: str, home: Path | None = None) -> bool:
    """Append a new variable to `.env`; if the name exists, do nothing and return False."""

    def change(text: str, file: str) -> str | None:
        return None if name in dotenv.parse(text, file=file) else _with_variable(text, name, value, file=file)

    return _change_env(change, home)


def put_variable(name: str, value: str, home: Path | None = None) -> None:
    """Set a variable of `.env` because a person asked for it, in one step; other lines stay."""

    def change(text: str, file: str) -> str:
        return _with_variable(dotenv.without(name, text, file=file), name, value, file=file)

    _change_env(change, home)


def remove_variable(name: str, home: Path | None = None) -> bool:
    """Remove a variable from `.env` because a person asked for it; False if it is missing. Other lines stay."""

    def change(text: str, file: str) -> str | None:
        changed = dotenv.without(name, text, file=file)
        return None if changed == text else changed

    return _change_env(change, home)


def _change_env(change: Callable[[str, str], str | None], home: Path | None) -> bool:
    """Write the text of `.env` that `change` returns; False if it returns None."""
    file = (home or ensure_home()) / ".env"

    def edited(text: str) -> Edited | None:
        changed = change(text, str(file))
        return None if changed is None else Edited(changed, True)

    return _save(file, edited) is not None


def _with_variable(text: str, name: str, value: str, *, file: str) -> str:
    if text and not text.endswith("\n"):
        text += "\n"
    changed = f"{text}{dotenv.line(name, value)}\n"
    holds = not any("\ud800" <= char <= "\udfff" for char in value)  # half a character, or bytes that are not UTF-8
    if not holds or dotenv.parse(changed, file=file).get(name) != value:
        raise ConfigError("cannot hold this value", file=file, key=name)
    return changed


def free_name(file: Path) -> Path:
    """An unused name for a backup: an earlier one may hold the only copy of comments and is never overwritten."""
    number, name = 1, file
    while name.exists():
        number += 1
        name = file.with_name(f"{file.name}{number}")
    return name


def _check_before_saving(text: str, file: Path, entries: Mapping[str, str]) -> Config:
    try:
        return _build(file.parent, yaml_file.parse(text, file=str(file)), dict(entries))
    except ConfigError as error:
        raise _not_saved(error) from error


def _check_elsewhere(check: Callable[[Config], object], before: Config, after: Config, key: str) -> None:
    """Run `check`: older errors may stay, but the key that is set must be valid."""
    try:
        check(after)
    except ConfigError as error:
        if not error.key.startswith(key):
            try:
                check(before)
            except ConfigError:
                return
        raise _not_saved(error) from error


def _not_saved(error: ConfigError) -> ConfigError:
    hint = f"Nothing was saved. {error.hint}".rstrip()
    return ConfigError(error.reason, file=error.file, key=error.key, hint=hint)


def _look(home: Path) -> _Remembered:
    with _lock:
        known = _remembered.get(home)
        # Called several times for each message of a gateway: joining paths would cost more than the two stats.
        if known is not None and known.stamps == (_stamp(f"{home}/config.yaml"), _stamp(f"{home}/.env")):
            return known
        files = (home / "config.yaml", home / ".env")
        last_good = known.last_good if known else None
        stamps: tuple[_Stamp | None, _Stamp | None] | None = None
        outcome: Config | ConfigError
        try:
            yaml_stamp, yaml_text = _read(files[0])
            env_stamp, env_text = _read(files[1])
            stamps = (yaml_stamp, env_stamp)
            entries = dotenv.parse(env_text, file=str(files[1])) if env_text else {}
            outcome = _build(home, _document(yaml_text, files[0]), entries, last_good)
            last_good = outcome
        except ConfigError as error:
            outcome = error
        found = _remembered[home] = _Remembered(stamps, outcome, last_good)
        return found


def _document(text: str, file: Path) -> yaml_file.Document:
    # A missing or blank file needs no parser.
    if not text.strip():
        return yaml_file.Document({}, None, str(file))
    try:
        return yaml_file.parse(text, file=str(file))
    except ConfigError as error:
        raise ConfigError(
            f"{file.name}: {error.reason}", file=error.file, line=error.line, hint=error.hint or _opens(file)
        ) from error


def of(home: Path, data: Mapping[str, Any], entries: Mapping[str, str] | None = None) -> Config:
    """A configuration from data, to try it before it is saved. Raises `ConfigError`."""
    source = yaml_file.Document(schema.plain(data), None, str(home / "config.yaml"))
    return _build(home, source, dict(entries or {}))


def _build(home: Path, source: yaml_file.Document, entries: dict[str, str], before: Config | None = None) -> Config:
    """`before` is the last good configuration of a running process."""
    tree = yaml_file.freeze(source.data, file=source.file)
    problems: list[Problem] = []
    read = schema.read(Settings, [Value(tree, home / "config.yaml")], problems, before=before)
    for one in problems:
        if one.at_or_below(*_STRICT):
            raise one.error(line=source.line(one.value.path))
    return Config(read, home=home, tree=tree, dotenv=MappingProxyType(entries), problems=tuple(problems))


def _opens(file: Path) -> str:
    return f"hermes config edit{' --env' if file.name == '.env' else ''} opens it; hermes config repair makes it load."


def _stamp(file: Path | str) -> _Stamp | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - see `_look`
    except OSError:  # the following read reports the reason
        return None
    return _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _read(file: Path) -> tuple[_Stamp | None, str]:
    """The text of a file and its stamp when opened; a missing file is an empty text."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_size > DEFAULTS.config_bytes:
                reason = f"{file.name} is larger than {DEFAULTS.config_bytes:,} bytes"
                raise ConfigError(reason, file=str(file), hint=_opens(file))
            content = opened.read()
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        where = file.parent if isinstance(error, NotADirectoryError) else file
        what = "the Hermes home is not a folder" if where != file else f"{file.name} cannot be read: {error.strerror}"
        raise ConfigError(what, file=str(where), hint=advice(error) or _DOCTOR) from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file.name} is not UTF-8 text", file=str(file), line=line, hint=_opens(file)) from error
    return _Stamp(status.st_mtime_ns, status.st_size, status.st_ino), text
