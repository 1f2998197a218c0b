"""A YAML file as data with places: parsing, and the line on which a key stands.

Everything that can be wrong with the text becomes a `ConfigError` with file, line and reason. PyYAML is
imported when a text is really parsed and not before: it is the most expensive import of this package.
Anchors and merge keys work; a value that contains itself is refused, since frozen data cannot express it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    import yaml

KeyPath = Sequence[str]
"""The keys from the top of a document down to a value."""

_MISFITS = (KeyError, AttributeError)
"""What the parser's constructors let through for a value such as `!!bool perhaps`."""


class Document(NamedTuple):
    """A parsed text: its data, and the nodes that know where each part stood."""

    data: dict[Any, Any]
    root: yaml.MappingNode | None
    file: str

    def line(self, path: KeyPath) -> int:
        """The 1-based line of a key, or of its nearest ancestor (a merged key has no line of its own)."""
        line = 0
        node: yaml.Node | None = self.root
        for name in path:
            if not (entry := find_entry(node, name)):
                break
            line = entry[0].start_mark.line + 1
            node = entry[1]
        return line


def parse(text: str, *, file: str) -> Document:
    """Read a text whose top level is a mapping (or nothing at all)."""
    import yaml

    loader = _fast_loader()(text)
    try:
        root = loader.get_single_node()
        data = loader.construct_document(root) if root is not None else {}
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, file) from error
    except ValueError as error:  # the constructors of dates and numbers let Python's own error through
        raise ConfigError(f"a value is not valid: {error}", file=file) from error
    except _MISFITS as error:
        raise ConfigError("a value does not fit the tag (!!…) before it", file=file) from error
    except RecursionError as error:
        raise ConfigError("values are nested too deeply", file=file) from error
    finally:
        loader.dispose()
    if root is None or data is None:
        return Document({}, None, file)
    if not isinstance(data, dict):
        raise ConfigError(
            "the top level is not a list of keys",
            file=file,
            line=root.start_mark.line + 1,
            hint="Write key: value.",
        )
    return Document(data, root, file)


def value_of(text: str) -> Any:
    """What a person wrote as one value. What is no YAML is meant as text."""
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, *_MISFITS):
        return text


def _fast_loader() -> Any:
    import yaml

    # libyaml reads a file of 1,100 lines in 6 ms instead of 45; it is in every binary wheel but not in every build.
    return yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def _syntax_error(error: Exception, text: str, file: str) -> ConfigError:
    import yaml

    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        return ConfigError(f"not valid YAML: {reason}", file=file, line=mark.line + 1 if mark else 0)
    if isinstance(error, yaml.reader.ReaderError) and isinstance(error.position, int):
        line = text.count("\n", 0, error.position) + 1
        return ConfigError(f"not valid YAML: {error.reason}", file=file, line=line)
    return ConfigError("not valid YAML", file=file)


def find_entry(node: yaml.Node | None, name: str) -> tuple[yaml.ScalarNode, yaml.Node] | None:
    """The key and value nodes of `name` in a mapping node. The last one counts, as it does for the data."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in reversed(node.value):
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            return key, value
    return None


def freeze(value: Any, *, file: str) -> Any:
    """The same data that nobody can change: mappings read-only, lists as tuples, sets frozen."""
    return _Freezer(file).freeze(value)


class _Freezer:
    """Freezes each shared value once, so that a text of many aliases cannot grow into a flood of copies."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._done: dict[int, Any] = {}
        self._open: set[int] = set()

    def freeze(self, value: Any) -> Any:
        if not isinstance(value, dict | list | set):
            return value
        place = id(value)
        if place in self._done:
            return self._done[place]
        if place in self._open:
            raise ConfigError("a value contains itself (YAML alias)", file=self._file)
        self._open.add(place)
        frozen: Any
        if isinstance(value, Mapping):
            frozen = MappingProxyType({key: self.freeze(item) for key, item in value.items()})
        elif isinstance(value, list):
            frozen = tuple(self.freeze(item) for item in value)
        else:
            frozen = frozenset(value)
        self._open.discard(place)
        self._done[place] = frozen
        return frozen
