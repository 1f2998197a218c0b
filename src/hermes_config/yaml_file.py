"""Parses a YAML file into data, finds the line of a key, and edits single keys.

Every error in the text becomes a `ConfigError` with file, line and reason. PyYAML is imported only to parse a text: it
is the most expensive import of this package. Anchors and merge keys work; a value that contains itself is refused,
since frozen data cannot express it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    import yaml


KeyPath = Sequence[str]
"""The keys from the top of a document down to a value."""

_BEGUN = object()
_MISFITS = (KeyError, AttributeError)
"""Exceptions of the parser's constructors for a value such as `!!bool perhaps`."""


class Document(NamedTuple):
    """A parsed text: its data, and the nodes with their positions."""

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
    """Parse one value that a person typed; invalid YAML counts as text."""
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


def repeated_keys(text: str) -> list[tuple[str, int]]:
    """The dotted keys that one section has more than once, each with the line of the last, which counts.

    A text that cannot be parsed has none.
    """
    import yaml

    loader = _fast_loader()(text)
    try:
        root = loader.get_single_node()
    except (yaml.YAMLError, RecursionError):
        return []
    finally:
        loader.dispose()
    repeated: dict[str, int] = {}
    seen: set[int] = set()  # an anchored section is looked at once
    rest: list[tuple[tuple[str, ...], yaml.Node | None]] = [((), root)]
    while rest:
        path, node = rest.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            rest += [((*path, str(number)), item) for number, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            continue
        names: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    repeated[".".join((*path, key.value))] = key.start_mark.line + 1
                names.add(key.value)
                rest.append(((*path, key.value), value))
    return list(repeated.items())


def find_entry(node: yaml.Node | None, name: str) -> tuple[yaml.ScalarNode, yaml.Node] | None:
    """The key and value nodes of `name` in a mapping node. The last one counts, as it does for the data."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in reversed(node.value):
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            return key, value
    return None


def freeze(value: Any, *, file: str, done: dict[int, Any] | None = None) -> Any:
    """The same data that nobody can change: mappings read-only, lists as tuples, sets frozen.

    Each shared value is frozen once (`done`), so that a text of many aliases cannot grow into a flood of copies.
    """
    if not isinstance(value, dict | list | set):
        return value
    done = {} if done is None else done
    place = id(value)
    if place not in done:
        done[place] = _BEGUN
        if isinstance(value, dict):
            done[place] = MappingProxyType({key: freeze(item, file=file, done=done) for key, item in value.items()})
        elif isinstance(value, list):
            done[place] = tuple(freeze(item, file=file, done=done) for item in value)
        else:
            done[place] = frozenset(value)
    if done[place] is _BEGUN:
        raise ConfigError("a value contains itself (YAML alias)", file=file)
    return done[place]


def set_in_data(data: dict[Any, Any], path: KeyPath, value: Any) -> dict[Any, Any]:
    """A copy of `data` with the value at `path`; whatever stood in the way as a parent becomes a section."""
    changed = copy.deepcopy(data)
    section = changed
    for name in path[:-1]:
        if not isinstance(section.get(name), dict):
            section[name] = {}
        section = section[name]
    section[path[-1]] = value
    return changed


class Edited(NamedTuple):
    """A text with one key changed. `kept_layout`: other lines are unchanged; else the whole text was rewritten."""

    text: str
    kept_layout: bool


def set_in_text(text: str, path: KeyPath, value: Any, *, file: str) -> Edited:
    """The text with one value changed."""
    before = parse(text, file=file)
    return _checked(_edit(text, before.root, path, value), set_in_data(before.data, path, value), file)


def _checked(edited: str | None, wanted: dict[Any, Any], file: str) -> Edited:
    """The edited text if it parses to the wanted data; else the whole data as a new text."""
    with suppress(ConfigError):
        if edited is not None and parse(edited, file=file).data == wanted:
            return Edited(edited, True)
    return Edited(dump(wanted), False)


def remove_in_data(data: dict[Any, Any], path: KeyPath) -> dict[Any, Any]:
    """A copy of `data` without the existing key at `path`, and without sections that this leaves empty."""
    changed = copy.deepcopy(data)
    sections = [changed]
    for name in path[:-1]:
        sections.append(sections[-1][name])
    for section, name in zip(reversed(sections), reversed(path), strict=True):
        del section[name]
        if section:
            break
    return changed


def remove_in_text(text: str, path: KeyPath, *, file: str) -> Edited:
    """The text without one existing key, and without sections that this leaves empty."""
    before = parse(text, file=file)
    return _checked(_remove(text, before.root, path), remove_in_data(before.data, path), file)


def _remove(text: str, root: yaml.MappingNode | None, path: KeyPath) -> str | None:
    import yaml

    parent: yaml.Node | None = root
    within, gone = None, None
    for name in path:
        entry = find_entry(parent, name)
        if not isinstance(parent, yaml.MappingNode) or entry is None:
            return None
        if gone is None or len(parent.value) > 1:  # a section that would be empty is removed as a whole
            within, gone = parent, entry
        parent = entry[1]
    if within is None or gone is None:
        return None
    return _without_entry(text, within, gone[0]) if within.flow_style else _without_lines(text, *gone)


def dump(data: dict[Any, Any]) -> str:
    """The data as a fresh text. Comments and layout are not part of the data."""
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def _edit(text: str, root: yaml.MappingNode | None, path: KeyPath, value: Any) -> str | None:
    import yaml

    parent, depth = root, 0
    while parent is not None and depth < len(path):
        entry = find_entry(parent, path[depth])
        if entry is None:
            return _insert(text, parent, path[depth:], value)
        key, found = entry
        depth += 1
        if depth == len(path):
            return _replace(text, found, value)
        if _is_empty(found):
            below = _lines(path[depth:], value, key.start_mark.column + 2, _newline(text))
            return _splice(text, found, below.rstrip(), block=True)
        parent = found if isinstance(found, yaml.MappingNode) else None
    if root is None:
        return _append(text, _lines(path, value, 0, _newline(text)))
    return None


def _without_lines(text: str, key: yaml.Node, value: yaml.Node) -> str:
    lines = text.splitlines(keepends=True)
    return "".join((*lines[: key.start_mark.line], *lines[_last_line(value) + 1 :]))


def _without_entry(text: str, section: yaml.MappingNode, gone: yaml.Node) -> str | None:
    """The text without one key of a section in braces."""
    place = next(number for number, (key, _) in enumerate(section.value) if key is gone)
    if place + 1 < len(section.value):
        start, end = gone.start_mark.index, section.value[place + 1][0].start_mark.index
    elif place:
        start, end = section.value[place - 1][1].end_mark.index, section.value[place][1].end_mark.index
    else:
        return None
    return None if "#" in text[start:end] else text[:start] + text[end:]


def _insert(text: str, section: yaml.MappingNode, path: KeyPath, value: Any) -> str | None:
    """Add a key after the last line of its section, or behind the last value of one in braces."""
    if not section.value:
        return None
    if section.flow_style:
        for name in reversed(path):
            value = {name: value}
        end = section.value[-1][1].end_mark.index
        return f"{text[:end]}, {_render(value)[1:-1]}{text[end:]}"
    lines = text.splitlines(keepends=True)
    after = _last_line(section) + 1
    new = _lines(path, value, section.value[0][0].start_mark.column, _newline(text))
    return _append("".join(lines[:after]), new) + "".join(lines[after:])


def _replace(text: str, node: yaml.Node, value: Any) -> str | None:
    import yaml

    if isinstance(node, yaml.ScalarNode):
        if node.style in ("|", ">"):
            return None
        return _splice(text, node, _render(value, quote=node.style))
    if isinstance(node, yaml.CollectionNode) and node.flow_style:
        return _splice(text, node, _render(value))
    return None


def _splice(text: str, node: yaml.Node, new: str, *, block: bool = False) -> str:
    """Replace a node's text by `new`; the marks of an empty value are both right after its colon."""
    start, end = node.start_mark.index, node.end_mark.index
    gap = _newline(text) if block else " " if start == end else ""
    return text[:start] + gap + new + text[end:]


def _append(text: str, lines: str) -> str:
    if text and not text.endswith("\n"):
        text += _newline(text)
    return text + lines


def _lines(path: KeyPath, value: Any, indent: int, newline: str) -> str:
    """`a.b.c` as nested lines, each section two columns further in."""
    *sections, last = path
    lines = [f"{' ' * (indent + 2 * depth)}{_render(name)}:" for depth, name in enumerate(sections)]
    lines.append(f"{' ' * (indent + 2 * len(sections))}{_render(last)}: {_render(value)}")
    return newline.join(lines) + newline


def _render(value: Any, *, quote: str | None = None) -> str:
    """A value on one line. A quoted text stays quoted, and a text with line breaks must be."""
    import yaml

    style = quote if isinstance(value, str) else None
    if isinstance(value, str) and "\n" in value:
        style = '"'
    dumped = yaml.safe_dump(value, default_flow_style=True, default_style=style, allow_unicode=True, width=2**31)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _last_line(node: yaml.Node) -> int:
    """The 0-based line on which a value ends; the parser's mark comes only after following comments."""
    import yaml

    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        return _last_line(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style:
        return _last_line(node.value[-1])
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return max(node.start_mark.line, node.end_mark.line - 1)
    return int(node.end_mark.line)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _is_empty(node: yaml.Node) -> bool:
    import yaml

    return isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index
