"""Where a setting stands, and reading it as what it should be: the ground under `config_read`.

Each setting may stand at the top of config.yaml or under `gateway:`; where it stands in both, the top counts. Below
both lies `gateway.json` of older homes. A bad value is a `ConfigError` with file, line, key and reason; the line is
looked up only then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gateway import config_values as coerce
from hermes_config import redaction, yaml_file
from hermes_config.config import Config
from hermes_config.errors import ConfigError
from hermes_config.home import advice

MOST = 2**53
_MEND = "Mend it or move it away."
YEAR = 366 * 24 * 3600


class Value(NamedTuple):
    """A value and where it stands."""

    raw: Any
    file: Path
    path: tuple[str, ...]

    def at(self, *keys: str) -> Value | None:
        """What stands below; None where nothing does, or this is no section."""
        raw = self.raw
        for key in keys:
            raw = raw.get(key) if isinstance(raw, Mapping) else None
        return None if raw is None else Value(raw, self.file, (*self.path, *keys))

    def wrong(self, reason: str, *, hint: str = "") -> ConfigError:
        key = ".".join(self.path)
        return ConfigError(reason, file=str(self.file), line=_line(self.file, self.path), key=key, hint=hint)

    # -- as what it should be ------------------------------------------------------------------------------

    def flag(self) -> bool:
        found = coerce.flag(self.raw, False)
        if found != coerce.flag(self.raw, True):
            raise self.wrong(f"must be true or false, not {redaction.shown(self.raw)}")
        return found

    def whole(self, least: int, most: int = MOST) -> int:
        number = self.number(least, most)
        if number != int(number):
            raise self.wrong(f"must be a whole number, not {redaction.shown(self.raw)}")
        return int(number)

    def number(self, least: float, most: float = MOST) -> float:
        number = coerce.number(self.raw, float("nan"), least=-MOST)
        if number != number:
            raise self.wrong(f"must be a number, not {redaction.shown(self.raw)}")
        if not least <= number <= most:
            bound = f"at least {least:,g}" if number < least else f"at most {most:,g}"
            raise self.wrong(f"must be {bound}, not {number:,g}")
        return number

    def choice(self, options: Collection[str]) -> str:
        # YAML reads a bare `off` as false.
        word = "off" if self.raw is False and "off" in options else (coerce.text(self.raw) or "").lower()
        if word not in options:
            raise self.wrong(f"must be {', '.join(options)}, not {redaction.shown(self.raw)}")
        return word

    def text(self) -> str:
        found = coerce.text(self.raw)
        if found is None:
            raise self.wrong("must be a text", hint="Write it in quotes.")
        return found

    def names(self) -> tuple[str, ...]:
        if isinstance(self.raw, Mapping | bool):
            raise self.wrong("must be a list")
        whole = (self.raw,) if isinstance(self.raw, int | float) else self.raw  # an id that nobody quoted
        return coerce.names(whole)

    def section(self) -> Mapping[str, Any]:
        if not isinstance(self.raw, Mapping):
            raise self.wrong(f"must be a section with keys, not {redaction.shown(self.raw)}")
        return self.raw

    def check_names(self, known: Collection[str]) -> None:
        """Any key may stand in a section, for another program may own it; but one that is nearly ours is a mistake."""
        from difflib import get_close_matches  # only ever needed for a key that is not ours

        for key in self.section():
            near = [] if key in known else get_close_matches(str(key), known, n=1, cutoff=0.85)
            if near:
                at = Value(None, self.file, (*self.path, str(key)))
                raise at.wrong("is not a known key", hint=f"Did you mean {near[0]}?")

    def parts(self) -> list[tuple[str, Value]]:
        """What stands in a section, by name; keys without a value mean the default."""
        return [(str(key), part) for key in self.section() if (part := self.at(key)) is not None]


class Source:
    """All the places a setting may stand in, the one that counts first."""

    def __init__(self, config: Config) -> None:
        self.config = config
        yaml = Value(config.tree, config.home / "config.yaml", ())
        self._top = yaml
        self._places = [yaml]
        if (own := yaml.at("gateway")) is not None:
            own.section()
            self._places.append(own)
        if (older := _older(config.home / "gateway.json")) is not None:
            self._places.append(older)

    def find(self, *names: str) -> Value | None:
        """The setting of that name, or of an older name for it."""
        for place in self._places:
            for name in names:
                if (value := place.at(name)) is not None:
                    return value
        return None

    def all(self, name: str) -> list[Value]:
        """Wherever it stands, the one that counts last."""
        return [value for place in reversed(self._places) if (value := place.at(name)) is not None]

    def elsewhere(self, *path: str) -> Value | None:
        """A setting of another room, which the gateway uses too."""
        return self._top.at(*path)

    def environ(self, name: str) -> str | None:
        return (self.config.environ(name) or "").strip() or None

    # -- with a default --------------------------------------------------------------------------------------

    def flag(self, name: str, default: bool) -> bool:
        value = self.find(name)
        return default if value is None else value.flag()

    def whole(self, name: str, default: int, *, least: int = 0, most: int = MOST) -> int:
        value = self.find(name)
        return default if value is None else value.whole(least, most)

    def names(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.find(name)
        return default if value is None else value.names()


def _older(file: Path) -> Value | None:
    """`gateway.json`, which older homes have."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"{file.name} cannot be read: {error.strerror}", file=str(file), hint=advice(error)
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file.name} is not UTF-8 text", file=str(file), hint=_MEND) from error
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{file.name} is not valid JSON: {error}", file=str(file), hint=_MEND) from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{file.name} must hold an object", file=str(file), hint=_MEND)
    return Value(raw, file, ())


def _line(file: Path, path: tuple[str, ...]) -> int:
    if file.name != "config.yaml":
        return 0
    try:
        return yaml_file.parse(file.read_text(encoding="utf-8"), file=str(file)).line(path)
    except (OSError, UnicodeDecodeError, ConfigError):  # it was changed since it was read; the key says enough
        return 0
