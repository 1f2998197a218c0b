"""Setting or removing one key in a YAML text while the rest stays as its author wrote it.

The value is replaced between the marks that the parser gave it; a key that is missing becomes one new line
at the end of its section. Every edit is read back and compared with the data it should give, so a
construction that this module does not understand (an alias, a block scalar, a section in braces) can never
be saved wrongly: the edit is given up (`None`) and the caller decides what to do.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hermes_config import document
from hermes_config.errors import ConfigError

if TYPE_CHECKING:
    import yaml


def set_in_data(data: dict[Any, Any], path: document.KeyPath, value: Any) -> dict[Any, Any]:
    """A copy of `data` with the value at `path`; whatever stood in the way as a parent becomes a section."""
    changed = copy.deepcopy(data)
    section = changed
    for name in path[:-1]:
        if not isinstance(section.get(name), dict):
            section[name] = {}
        section = section[name]
    section[path[-1]] = value
    return changed


def set_in_text(text: str, path: document.KeyPath, value: Any, *, file: str) -> str | None:
    """The text with one value changed, or None when that cannot be done on the lines concerned alone."""
    before = document.parse(text, file=file)
    edited = _edit(text, before.root, path, value)
    if edited is None:
        return None
    try:
        after = document.parse(edited, file=file)
    except ConfigError:
        return None
    return edited if after.data == set_in_data(before.data, path, value) else None


def remove_in_data(data: dict[Any, Any], path: document.KeyPath) -> dict[Any, Any]:
    """A copy of `data` without the key at `path`, which is there, nor any section that this leaves empty."""
    changed = copy.deepcopy(data)
    sections = [changed]
    for name in path[:-1]:
        sections.append(sections[-1][name])
    for section, name in zip(reversed(sections), reversed(path), strict=True):
        del section[name]
        if section:
            break
    return changed


def remove_in_text(text: str, path: document.KeyPath, *, file: str) -> str | None:
    """The text without the lines of one key, or None when that cannot be done on the lines concerned alone."""
    import yaml

    before = document.parse(text, file=file)
    parent, within, first, last = before.root, None, None, None
    for depth, name in enumerate(path):
        entry = document.find_entry(parent, name)
        if parent is None or entry is None:
            return None
        if first is None or len(parent.value) > 1:  # a section that would be left empty goes as a whole
            within, (first, last) = parent, entry
        if depth < len(path) - 1:
            if not isinstance(entry[1], yaml.MappingNode):
                return None
            parent = entry[1]
    if within is None or first is None or last is None:
        return None
    edited = _without_entry(text, within, first) if within.flow_style else _without_lines(text, first, last)
    if edited is None:
        return None
    try:
        after = document.parse(edited, file=file)
    except ConfigError:
        return None
    return edited if after.data == remove_in_data(before.data, path) else None


def dump(data: dict[Any, Any]) -> str:
    """The data as a fresh text. Comments and layout are not part of the data."""
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)


def _edit(text: str, root: yaml.MappingNode | None, path: document.KeyPath, value: Any) -> str | None:
    import yaml

    parent, depth = root, 0
    while parent is not None and depth < len(path):
        entry = document.find_entry(parent, path[depth])
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
    """A section in braces without one of its keys: what stands between its neighbours' marks goes."""
    place = next(number for number, (key, _) in enumerate(section.value) if key is gone)
    if place + 1 < len(section.value):
        start, end = gone.start_mark.index, section.value[place + 1][0].start_mark.index
    elif place:
        start, end = section.value[place - 1][1].end_mark.index, section.value[place][1].end_mark.index
    else:
        return None
    return None if "#" in text[start:end] else text[:start] + text[end:]


def _insert(text: str, section: yaml.MappingNode, path: document.KeyPath, value: Any) -> str | None:
    """Add the key below the last line of its section."""
    if section.flow_style or not section.value:
        return None
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
    """Put `new` between the marks of a node; an empty value has both marks right behind its colon."""
    start, end = node.start_mark.index, node.end_mark.index
    gap = _newline(text) if block else " " if start == end else ""
    return text[:start] + gap + new + text[end:]


def _append(text: str, lines: str) -> str:
    if text and not text.endswith("\n"):
        text += _newline(text)
    return text + lines


def _lines(path: document.KeyPath, value: Any, indent: int, newline: str) -> str:
    """`a.b.c` as nested lines, each section two columns further in."""
    *sections, last = path
    lines = [f"{' ' * (indent + 2 * depth)}{_render(name)}:" for depth, name in enumerate(sections)]
    lines.append(f"{' ' * (indent + 2 * len(sections))}{_render(last)}: {_render(value)}")
    return newline.join(lines) + newline


def _render(value: Any, *, quote: str | None = None) -> str:
    """A value on one line. A text that was quoted stays quoted, and one with line breaks has to be."""
    import yaml

    style = quote if isinstance(value, str) else None
    if isinstance(value, str) and "\n" in value:
        style = '"'
    dumped = yaml.safe_dump(value, default_flow_style=True, default_style=style, allow_unicode=True, width=2**31)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _last_line(node: yaml.Node) -> int:
    """The 0-based line on which a value ends; the parser's own mark lies behind comments that follow."""
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
