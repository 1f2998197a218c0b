"""Declares, reads and checks settings.

A section of config.yaml is a class (`sections`) whose attributes are declared by `setting`: default, kind, one line for
the manual. That one declaration serves to read files (`read`), to check a single key (`hermes config set`), to find
mistyped and unused keys (`SettingsTable`), and to make the page of settings (`tools/settings_page.py`).

An invalid value is a `Problem`. The reader records it and uses the last good value, else the default. Code that cannot
accept that raises the problem (`Config.require`) as an error with file, line, key and reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from hermes_config.errors import ConfigError

S = TypeVar("S", bound="Section")
Environ = Callable[[str], "str | None"]
"""Returns a variable of the environment or `.env`."""
MOST = 2**53
YEAR = 366 * 24 * 3600
ANY = "<name>"
"""The placeholder in a key for a name that the person chooses, such as a platform's or a model's."""
_KEEP = object()
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_FEW = 12
"""The most names listed in an error."""


# -- a value and its location --------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A value and its location: file and key."""

    raw: Any
    file: Path
    path: tuple[str, ...] = ()

    def at(self, *keys: str) -> Value | None:
        """The value below; None if there is none or this is not a section."""
        raw = self.raw
        for key in keys:
            raw = raw.get(key) if isinstance(raw, Mapping) else None
        return None if raw is None else Value(raw, self.file, (*self.path, *keys))

    def parts(self) -> list[tuple[str, Value]]:
        """The values of a section by name; a key without a value is left out and means the default."""
        return [(str(key), part) for key in self.section() if (part := self.at(key)) is not None]

    def section(self) -> Mapping[str, Any]:
        if not isinstance(self.raw, Mapping):
            raise self.wrong(f"must be a section with keys, not {shown(self.raw)}")
        return self.raw

    def read(self, kind: Kind) -> Any:
        """The value, converted to its kind. Raises `ConfigError`."""
        problems: list[Problem] = []
        found = kind.take(self, problems, None)
        if problems:
            raise problems[0].error()
        return found

    def wrong(self, reason: str, *, hint: str = "") -> ConfigError:
        return Problem(self, reason, hint).error()


class Problem(NamedTuple):
    """An invalid value. Its line is looked up only for an error."""

    value: Value
    reason: str
    hint: str = ""

    @property
    def key(self) -> str:
        return ".".join(self.value.path)

    @property
    def note(self) -> str:
        return f"{self.key} {self.reason}"

    def at_or_below(self, *keys: str) -> bool:
        return any(self.key == key or self.key.startswith(f"{key}.") for key in keys)

    def error(self, line: int | None = None) -> ConfigError:
        file, path = self.value.file, self.value.path
        found = line_of(file, path) if line is None else line
        return ConfigError(self.reason, file=str(file), line=found, key=self.key, hint=self.hint)


def line_of(file: Path, path: Sequence[str]) -> int:
    """The line of a key in config.yaml; 0 if it is not found."""
    from hermes_config import yaml_file  # needed only for errors

    if file.name != "config.yaml":
        return 0
    try:
        return yaml_file.parse(file.read_text(encoding="utf-8"), file=str(file)).line(path)
    except (OSError, UnicodeDecodeError, ConfigError):  # the file has changed since; the key is enough
        return 0


def shown(value: object) -> str:
    from hermes_config import redaction  # only ever needed for a mistake

    return redaction.shown(value)


# -- kinds of values -----------------------------------------------------------------------------------------------


class Unfit(Exception):
    """Raised for an invalid value; `use` replaces it, if given."""

    def __init__(self, reason: str, *, hint: str = "", use: Any = _KEEP) -> None:
        super().__init__(reason)
        self.reason, self.hint, self.use = reason, hint, use


class Kind:
    """The kind of a setting's values. `name` appears on the page of settings."""

    name = "text"

    def read(self, raw: Any) -> Any:
        """Convert a raw value. Raises `Unfit`."""
        return raw

    def take(self, value: Value, problems: list[Problem], keep: Any, environ: Environ | None = None) -> Any:
        """The converted value; for an invalid one `keep`, with a new entry in `problems`."""
        try:
            return self.read(value.raw)
        except Unfit as unfit:
            problems.append(Problem(value, unfit.reason, unfit.hint))
            return keep if unfit.use is _KEEP else unfit.use


class Anything(Kind):
    """Any value; the code that uses it checks it."""

    def __init__(self, name: str) -> None:
        self.name = name


class Flag(Kind):
    name = "true or false"

    def read(self, raw: Any) -> bool:
        word = str(raw).strip().lower()
        if isinstance(raw, bool | int | float | str) and word.removesuffix(".0") in _TRUE | _FALSE:
            return word.removesuffix(".0") in _TRUE
        raise Unfit(f"must be true or false, not {shown(raw)}")


class Number(Kind):
    """A number as people write it: 30, "30", 1_000."""

    whole = False

    def __init__(self, least: float = 0, most: float = MOST, name: str = "number") -> None:
        self.least, self.most, self.name = least, most, name

    def read(self, raw: Any) -> Any:
        number = _number(raw)
        fits = number is not None and self.least <= number <= self.most and (not self.whole or number == int(number))
        if not fits or number is None:
            bounds = f"of at least {self.least:,}" if self.most >= MOST else f"from {self.least:,} to {self.most:,}"
            raise Unfit(f"must be a {'whole ' if self.whole else ''}number {bounds}, not {shown(raw)}")
        return int(number) if self.whole else float(number)


class Whole(Number):
    whole = True

    def __init__(self, least: int = 0, most: int = MOST, name: str = "whole number") -> None:
        super().__init__(least, most, name)


class Tokens(Whole):
    """A number of tokens, also written 200,000; `auto`, an empty value and 0 mean None."""

    def __init__(self) -> None:
        super().__init__(0, 999_999_999, "tokens")

    def read(self, raw: Any) -> int | None:
        plain = raw.replace(",", "").strip() if isinstance(raw, str) else raw
        return None if plain in ("", "auto") else super().read(plain) or None


class Money(Kind):
    """A sum in dollars: 5, 0.25, "$5"."""

    name = "dollars"

    def __init__(self, most: float) -> None:
        self._most = most

    def read(self, raw: Any) -> float:
        number = _number(raw.strip().removeprefix("$") if isinstance(raw, str) else raw)
        if number is None or not 0 <= number <= self._most:
            bounds = f"of at least 0 and at most {self._most:,}"
            raise Unfit(f"must be an amount in dollars {bounds}, such as 5 or 0.25, not {shown(raw)}")
        return float(number)


class Choice(Kind):
    """One of a few words. `spelt`: other spellings, such as YAML's false for a bare `off`.

    `also`: a pattern of further words, and how it is written for people.
    """

    def __init__(
        self, *options: str, spelt: Mapping[Any, str] | None = None, also: tuple[re.Pattern[str], str] | None = None
    ) -> None:
        self.options, self._spelt, self._also = options, {} if spelt is None else spelt, also
        self.name = ", ".join(options)

    def read(self, raw: Any) -> str | None:
        if raw == "":
            return None
        word = "off" if raw is False and "off" in self.options else str(raw).strip().lower()
        word = self._spelt.get(raw if isinstance(raw, bool) else word, word)
        if word not in self.options and not (self._also and self._also[0].fullmatch(word)):
            *others, last = (*self.options, self._also[1]) if self._also else self.options
            raise Unfit(f"must be {', '.join(others)} or {last}, not {shown(raw)}")
        return word


class PlainText(Kind):
    """A text that is not empty. `check` returns what is wrong with it, or an empty text."""

    def __init__(self, name: str = "text", *, check: Callable[[str], str] | None = None) -> None:
        self.name, self._check = name, check

    def read(self, raw: Any) -> str | None:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            raise Unfit("must be a text", hint="Write it in quotes.")  # never shown: it may be a secret
        text = str(raw).strip()
        if text and self._check is not None and (reason := self._check(text)):
            raise Unfit(reason)
        return text or None


class Names(Kind):
    """A list of names, or one text with commas between them."""

    def __init__(
        self, name: str = "list", *, check: Callable[[str], str] | None = None, instead: tuple[str, ...] | None = None
    ) -> None:
        """`instead`: replaces an invalid value, if the default would allow more."""
        self.name, self._check = name, check
        self._instead: Any = _KEEP if instead is None else instead

    def read(self, raw: Any) -> tuple[str, ...]:
        if isinstance(raw, Mapping | bool) or raw is None:
            raise Unfit(f"must be a list, not {shown(raw)}", use=self._instead)
        parts = raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, Collection) else (raw,)
        names = tuple(name for part in parts if not isinstance(part, Mapping | bool) and (name := str(part).strip()))
        for name in names:
            if self._check is not None and (reason := self._check(name)):
                raise Unfit(reason)
        return names


class Ids(Names):
    """A list of ids, which are texts or whole numbers: an item that is something else is not left out."""

    def __init__(self) -> None:
        super().__init__("list of ids")

    def read(self, raw: Any) -> tuple[str, ...]:
        for item in raw if isinstance(raw, list | tuple) else (raw,):
            if isinstance(item, bool) or not isinstance(item, str | int):
                raise Unfit(f"must be a list of ids, not {shown(item)}", hint="Write ids in quotes.")
        return super().read(raw)


class Patterns(Kind):
    """One text or a list of texts, which may hold commas. Other items are left out."""

    def __init__(self, name: str = "list of patterns") -> None:
        self.name = name

    def read(self, raw: Any) -> tuple[str, ...]:
        items = raw if isinstance(raw, list | tuple) else (raw,)
        texts = tuple(item.strip() for item in items if isinstance(item, str) and item.strip())
        if len(texts) != sum(item != "" for item in items):
            raise Unfit("holds entries that are not text; they are ignored", use=texts)
        return texts


class Part(Kind):
    """A section within a section. `names`: how unknown keys are treated."""

    def __init__(
        self, cls: type[Any], names: Literal["any", "near", "closed"] = "any", *, bare: str = "", name: str = "section"
    ) -> None:
        """`near`: a key that is nearly a known one is an error; `closed`: every unknown key is.

        `bare`: the key that a bare value instead of the section sets.
        """
        self.cls, self._names, self.bare, self.name = cls, names, bare, name

    def take(self, value: Value, problems: list[Problem], keep: Any, environ: Environ | None = None) -> Any:
        if self.bare and not isinstance(value.raw, Mapping):
            value = value._replace(raw={self.bare: value.raw})
        if not isinstance(value.raw, Mapping):
            reason = f"must be a section with keys such as {next(iter(self.cls.settings.values())).key}"
            problems.append(Problem(value, reason))
            return keep if keep is not None else self.cls()
        if self._names != "any":
            known = [row.key for row in self.cls.settings.values() if not row.fixed]
            problems += unknown_names(value, known, closed=self._names == "closed")
        made = read(self.cls, [value], problems, before=keep, environ=environ)
        return made.settle(value.raw) if hasattr(made, "settle") else made


class Each(Kind):
    """A section whose keys are names that the person chooses."""

    def __init__(self, kind: Kind, *, brief: bool = False) -> None:
        """`brief`: the manual has one line for it instead of one for each key of its sections."""
        self.kind, self.brief, self.name = kind, brief, kind.name

    def take(self, value: Value, problems: list[Problem], keep: Any, environ: Environ | None = None) -> Any:
        if not isinstance(value.raw, Mapping):
            problems.append(Problem(value, "must be a section with names as keys"))
            return keep or {}
        before: Mapping[str, Any] = keep or {}
        taken = {name: self.kind.take(part, problems, before.get(name)) for name, part in value.parts()}
        return {name: one for name, one in taken.items() if one is not None}


def _number(raw: Any) -> float | int | None:
    if isinstance(raw, str):
        text = raw.strip().replace("_", "")
        try:
            raw = int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else float(text)
        except ValueError:
            return None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        return None
    return raw


def unknown_names(value: Value, known: Collection[str], *, closed: bool = False) -> list[Problem]:
    """The unknown keys of a section that count as errors."""
    problems = []
    for key in value.raw:
        if key in known:
            continue
        at = Value(None, value.file, (*value.path, str(key)))
        near = close_to(str(key), known, cutoff=0.5 if closed else 0.85)
        if near:
            where = f"{'.'.join(value.path)}." if value.path else ""
            problems.append(Problem(at, "is not a known key", f"Did you mean {where}{near}?"))
        elif closed:
            few = len(known) <= _FEW
            listed = sorted(known) if few else [close_to(str(key), known, cutoff=0.0)]
            hint = f"{'Known' if few else 'The nearest'}: {', '.join(listed)}."
            problems.append(Problem(at, "is not a known key", hint))
    return problems


def close_to(name: str, known: Collection[str], *, cutoff: float) -> str:
    from difflib import get_close_matches  # only ever needed for a mistake

    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=cutoff)), "")


# -- declaring settings --------------------------------------------------------------------------------------------


class Unused(NamedTuple):
    """Why a key has no effect, and whether ignoring it is unsafe, because it restricts something."""

    reason: str
    unsafe: bool = False


class Setting(NamedTuple):
    """One row of the table of settings."""

    key: str
    kind: Kind
    default: Any
    """The default, or a function that makes one for each section."""
    about: str = ""
    """One line for the manual; a row without one is not listed there."""
    variable: str = ""
    """The variable of the environment or `.env` that overrides the file."""
    restart: bool = False
    """Whether a change needs a restart of the gateway or the terminal client; else it applies at the next turn."""
    also: tuple[str, ...] = ()
    """Other full keys of this setting in older homes."""
    fixed: bool = False
    """Whether the value applies before a configuration is read: it is listed but cannot be set."""
    area: str = ""
    """The heading of the manual for this row and the following ones."""
    repr: bool = True
    """False for a secret."""
    unused: Unused | None = None
    """Set for a key of hermes-agent that has no effect."""

    def made_default(self) -> Any:
        return self.default() if callable(self.default) else self.default


def setting(default: Any, kind: Kind, about: str = "", *, key: str = "", **more: Any) -> Any:
    """Declare a setting of a section. `key`: its key in the file, if that is not the attribute's name."""
    return Setting(key, kind, default, about, **more)


def part(cls: type[S], names: Literal["any", "near", "closed"] = "any", **about: Any) -> S:
    """Declare a setting that is a section."""
    made: S = setting(cls, Part(cls, names), **about)
    return made


class Section:
    """A section of config.yaml, with a typed attribute for each declared setting. Immutable.

    It is not a dataclass, because `dataclass` compiles six functions for each of the thirty sections, which costs every
    short command 20 ms.
    """

    settings: ClassVar[Mapping[str, Setting]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: row for name, row in vars(cls).items() if isinstance(row, Setting)}
        cls.settings = {**cls.settings, **{name: row._replace(key=row.key or name) for name, row in own.items()}}
        for name in own:
            delattr(cls, name)

    def __init__(self, *given: Any, **values: Any) -> None:
        values.update(zip(self.settings, given, strict=False))
        for name, row in self.settings.items():
            vars(self)[name] = values.pop(name) if name in values else row.made_default()
        if values:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(values)}")

    def changed(self, **values: Any) -> Self:
        """A copy with other values."""
        return type(self)(**{name: getattr(self, name) for name in self.settings} | values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _compared(other) == _compared(self)

    def __hash__(self) -> int:
        return hash(tuple(_compared(self).values()))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name, row in self.settings.items() if row.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compared(section: object) -> dict[str, Any]:
    return {name: value for name, value in vars(section).items() if not name.startswith("_")}


class MutableSection(Section):
    """A section that programs may build and change."""

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[name] = value

    def to_dict(self) -> dict[str, Any]:
        return dict(plain(self))

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """For programs: every bad value is replaced by the default."""
        given = plain(data) if isinstance(data, Mapping) else {}
        made: Self = Part(cls).take(Value(given, Path()), [], None)
        return made


def read(
    cls: type[S],
    places: Sequence[Value],
    problems: list[Problem],
    *,
    before: S | None = None,
    environ: Environ | None = None,
) -> S:
    """Read a section from the parts of the file that may hold its keys; the first part wins.

    `before` is the last good state, kept for invalid values. `environ` returns variables, which override the file.
    """
    values: dict[str, Any] = {}
    for name, row in cls.settings.items():
        found = _found(row, places, environ)
        if found is not None and not row.fixed:
            keep = row.made_default() if before is None else getattr(before, name)
            values[name] = row.kind.take(found, problems, keep, environ)
    return cls(**{name: value for name, value in values.items() if value is not None})


def _found(row: Setting, places: Sequence[Value], environ: Environ | None) -> Value | None:
    if environ is not None and row.variable and (said := (environ(row.variable) or "").strip()):
        return Value(said, Path("environment"), (row.variable,))
    for key in (row.key, *row.also):
        for place in places:
            if (value := place.at(*key.split("."))) is not None:
                return value
    # The file has no such key, but a variable may set a part of it.
    return Value({}, Path("environment")) if environ is not None and isinstance(row.kind, Part) else None


def plain(value: Any) -> Any:
    """Sections and frozen configuration as ordinary dictionaries and lists."""
    if isinstance(value, Section):
        return {name: plain(getattr(value, name)) for name in value.settings}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


# -- the table -----------------------------------------------------------------------------------------------------


class SettingsTable:
    """All settings by their keys. A key under `gateway:` means the same as at the top level."""

    def __init__(self, sections: Sequence[type[Any]], unused: Mapping[str, Unused]) -> None:
        self.rows: dict[str, Setting] = {}
        self._bare: dict[str, str] = {}
        area = ""
        for cls in sections:
            self._bare |= {row.key: row.kind.bare for row in cls.settings.values() if isinstance(row.kind, Part)}
            for row in _rows(cls):
                area = row.area or area
                self.rows.setdefault(row.key, row._replace(area=area))
                for key in row.also:
                    same = row._replace(key=key, about=f"an older name of `{row.key}`", variable="", area=area)
                    self.rows.setdefault(key, same)
        for key, why in unused.items():
            self.rows[key] = Setting(key, Anything("text"), None, unused=why)

    def find(self, path: Sequence[str]) -> Setting | None:
        """The row of a key, or the row above it that has no keys of its own."""
        for start in (tuple(path), tuple(path[1:]) if path[0] == "gateway" else ()):
            for end in range(len(start), 0, -1):
                for key in (".".join(start[:end]), *_with_names(start[:end])):
                    row = self.rows.get(key) if key.count(".") == end - 1 else None  # "a.b": is one name with a dot
                    if row is not None and (end == len(start) or not self._is_section(key)):
                        return row
        return None

    def bare_key(self, section: str) -> str:
        """The key that a bare value instead of this section sets (`model: demo`); empty if a bare value is wrong."""
        return self._bare.get(section.removeprefix("gateway."), "")

    def is_known(self, key: str) -> bool:
        """Whether a dotted key is a setting, a section, or below a name that the person chooses."""
        return (
            key == "gateway" or self.find(key.split(".")) is not None or self._is_section(key.removeprefix("gateway."))
        )

    def meant(self, key: str) -> str:
        """The known key that this one is most likely a typo of; empty if it is known or like none."""
        if self.is_known(key):
            return ""
        first, _, rest = key.partition(".")
        if near := self._near_section(first):
            return f"{near}.{rest}" if rest else near
        return self._near(key.split("."))

    def mistyped(self, tree: Mapping[str, Any]) -> list[str]:
        """Unknown keys of config.yaml that look like settings. Other unknown keys may be another program's."""
        pairs = [(str(key), self._near_section(str(key))) for key in tree]
        pairs += [(".".join(path), self._near(path)) for path in paths(tree) if self.find(path) is None]
        return [f"{key} is not a known key; did you mean {near}?" for key, near in pairs if near]

    def _is_section(self, key: str) -> bool:
        return any(known.startswith(f"{key}.") for known in self.rows)

    def _near(self, path: Sequence[str]) -> str:
        """A similar key of the same section."""
        section = ".".join(path[:-1])
        if not section or section == "limits":  # at the top anybody's keys may stand; limits are checked when read
            return ""
        under = section.removeprefix("gateway").removeprefix(".")
        beside = {key.rpartition(".")[2] for key in self.rows if key.rpartition(".")[0] == under}
        close = close_to(path[-1], beside, cutoff=0.7)
        return f"{section}.{close}" if close else ""

    def _near_section(self, name: str) -> str:
        """A similar key at the top level; empty if this is one."""
        sections = {key.partition(".")[0] for key in self.rows} | {"gateway"}
        return "" if name in sections else close_to(name, sections, cutoff=0.8)


def _rows(cls: type[Any], above: str = "") -> Iterator[Setting]:
    for row in cls.settings.values():
        key, each = f"{above}{row.key}", row.kind if isinstance(row.kind, Each) else None
        kind, brief = (row.kind, False) if each is None else (each.kind, each.brief)
        key = key if each is None else f"{key}.{ANY}"
        if not isinstance(kind, Part) or row.about:
            yield row._replace(key=key, default=None if callable(row.default) else row.default)
        if isinstance(kind, Part):
            for at, inner in enumerate(_rows(kind.cls, f"{key}.")):
                area = inner.area or (row.area if at == 0 and not row.about else "")
                about = "" if brief else inner.about
                yield inner._replace(about=about, area=area, restart=row.restart or inner.restart)


def _with_names(path: Sequence[str]) -> Iterator[str]:
    for names in (1, 2):
        for chosen in combinations(range(1, len(path)), names):
            yield ".".join(ANY if at in chosen else name for at, name in enumerate(path))


def paths(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key with a value that is not a section."""
    for key, value in tree.items():
        path = (*above, str(key))
        if isinstance(value, Mapping):
            yield from paths(value, path)
        elif value is not None:
            yield path
