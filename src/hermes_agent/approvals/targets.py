"""Where a call's targets come from: the person's own words, or something that was read.

A target is a value that says whom or what a call reaches. A call runs unasked only if each of its targets stands in
words of the person or of staff in this conversation (`hermes_state.conversations.origins`); otherwise the card says
where the value was first seen. A call that only reads is checked for addresses alone, because an address can carry
private data away: a link that a search found, or a link of a page to its own site, may be followed.

Values are compared whole, never as a part of another word: `x.com` does not stand in `bob@x.com`, `13` not in
`2024-05-13`. Case, width and spacing do not matter. Nothing here calls a model.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent import mentions
from hermes_agent.approvals import text
from hermes_agent.tools.base import Action
from hermes_state.conversations.origins import SEARCH, FirstSeen, source_of
from hermes_state.ids import ConversationId, PersonId, TurnId

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB

_NAMES = frozenset({
    "to", "cc", "bcc", "recipient", "receiver", "email", "mail", "address", "url", "uri", "link", "host",
    "hostname", "domain", "server", "endpoint", "webhook", "account", "iban", "wallet", "phone", "channel", "chat",
    "room", "group", "user", "username", "member", "participant", "attendee", "invitee", "payee", "beneficiary",
    "destination", "target", "path", "file", "filename", "folder", "directory", "bucket", "repo", "repository",
    "contact", "assignee", "dest", "dst", "tel", "mobile",
})  # fmt: skip
"""Words in the names of arguments that are targets, for tools that do not declare theirs."""
_ADDRESSES = frozenset(["address", "url", "uri", "link", "host", "hostname", "domain", "server", "endpoint", "webhook"])
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_MAIL = re.compile(r"(?<![^\s@<>,;])[^\s@<>,;]+@[^\s@<>,;]+\.[^\s@<>,;]+")
"""It begins only where a word begins: a search from each character of a long word takes the square of its length."""
_ADDRESS = re.compile(
    r"(?<![\w@.\-/])(?P<scheme>https?://)?(?P<host>(?:[\w-]+\.)+[a-z]{2,24}(?::\d+)?)(?P<rest>[/?#][^\s<>\"'`]*)?(?![\w@])"
)
_FILE_ENDINGS = frozenset({
    "md", "py", "rs", "sh", "pl", "ps", "zip", "mov", "cc", "so", "ai", "app", "bz", "in", "la", "mk", "ml", "mm",
    "pub", "tf",
})  # fmt: skip
"""Endings that a name of a file shares with a name of a host: such a bare name is taken for a file."""
_ENDS = ".,;:!?)]}'\"”’»"
_JOINS = r".\-_/@+\\"
_BEFORE, _AFTER = rf"(?<!\w)(?<!\w[{_JOINS}'&%~])(?<!\d[,:])", rf"(?!\w)(?![{_JOINS}]\w)(?![,:]\d)"
_NUMBER = re.compile(r"\+?[a-z]{0,2}\d[\da-z]{5,63}")
_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_GAP = r"[\s\-./()]{0,2}"
_SENT_FILE = re.compile(
    r"^\[(?:photo|video|audio|voice|document|sticker): (?:.*(?=, [\d,]+ bytes(?:\]|; it))|.*$)", re.MULTILINE
)
"""The line about a file that came with a message, up to its size: whoever made the file chose its name."""
_PAGES = re.compile(r"https?://\S+(?:, https?://\S+)*")
_NAMED = 5
"""How many targets a card explains one by one."""
_SMALL = 3
_RUN = 5
"""So many words in a row are a quotation."""
_LONGEST_VALUE = 2_000
"""A longer value is only compared between spaces: the search for its bounds takes the square of its length."""
_LOOKED, _MOST_VALUES = 20_000, 100
"""The most characters, and values in them, of a text of the model that are searched for outside."""
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


# -- which values are targets ------------------------------------------------------------------------------------------


def of_call(
    tool: str,
    declared: Sequence[str],
    schema: Mapping[str, Any],
    args: Mapping[str, Any],
    config: Config,
    *,
    workspace: str = "",
) -> tuple[tuple[str, str], ...]:
    """(argument, value) of each target of a call: as the owner's configuration, the tool, or else its names say.

    A value that the tool's own schema lists or sets by default reaches nothing that an outsider chose, and a whole path
    in the workspace nothing beyond it.
    """
    settings = config.approvals.targets
    names = next((names for glob, names in settings.items() if fnmatchcase(tool, glob)), declared or None)
    rules: Mapping[str, Any] = schema.get("properties") or {}
    found = [
        (name, one)
        for name, value in _leaves(args)
        if (name in names if names is not None else _is_target(name, value))
        and not _is_given(rules.get(name), value)
        and not _is_within(value, workspace)
        for one in _elements(value)
    ]
    return tuple(dict.fromkeys(found))


def _leaves(args: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text and number in the arguments, and keys that are addresses, with the name of the nearest key above."""
    if isinstance(args, Mapping):
        for key, value in args.items():
            if _are_addresses(str(key)):
                yield name or str(key), str(key)
            yield from _leaves(value, str(key))
    elif isinstance(args, list | tuple):
        for value in args:
            yield from _leaves(value, name)
    elif isinstance(args, str | int | float) and not isinstance(args, bool) and re.search(r"\w", str(args)):
        yield name, str(args)


def _is_target(name: str, value: str) -> bool:
    return _are_addresses(value) or bool(_words(name) & _NAMES)


def _are_addresses(value: str) -> bool:
    """Whether the value is a mail or web address, or several, and nothing else."""
    return all(("://" in one and not re.search(r"\s", one)) or _MAIL.fullmatch(one) for one in _elements(value))


def _words(name: str) -> set[str]:
    """The words of an argument's name, in the singular too."""
    words = {word.lower() for word in _WORD.findall(name)}
    return words | {word.removesuffix(plural) for word in words for plural in ("s", "es")}


def _is_given(rule: Any, value: str) -> bool:
    if not isinstance(rule, Mapping):
        return False
    return value in map(str, rule.get("enum") or ()) or ("default" in rule and str(rule["default"]) == value)


def _is_within(value: str, folder: str) -> bool:
    inside = value == folder or value.startswith(f"{folder}/")
    return bool(folder.strip("/")) and inside and ".." not in value.split("/")


def _elements(value: str) -> list[str]:
    """The values of a list in one text: `Ann <ann@x.org>, bob@x.org` is two addresses."""
    words = value.split()
    if all("://" in word for word in words):
        return words or [value]
    if "@" not in value:
        return [value]
    found: list[str] = []
    for part in filter(None, map(str.strip, re.split("[,;]", value))):
        named = re.fullmatch(rf"[^<>]*<({_MAIL.pattern})>", part)
        words = part.split()
        found += [named[1]] if named else words if all(map(_MAIL.fullmatch, words)) else [part]
    return found or [value]


# -- whether a value stands in a text ----------------------------------------------------------------------------------


def stands_in(value: str, words: str, *, argument: str = "") -> bool:
    """Whether the value stands in these words, as a whole; a small number only with its noun (`file 13`, `#13`), if
    the `argument` is given: other numbers are days, hours and amounts."""
    return not _is_disguised(value) and _stands(_normal(value).lstrip("#@"), _normal(words), argument)


def _is_disguised(value: str) -> bool:
    """Whether it holds a character that becomes a mark of addresses when it is made plain: `good.org＃.evil.org` is the
    host good.org for one program and a host of evil.org for another."""
    return any(mark in "/\\?#@:" for one in value if not one.isascii() for mark in unicodedata.normalize("NFKC", one))


def _stands(wanted: str, said: str, argument: str = "") -> bool:
    """`stands_in`, for texts that are `_normal`."""
    if not wanted:
        return False
    if len(wanted) > _LONGEST_VALUE:
        return f" {wanted} " in f" {said} "
    if argument and wanted.isdecimal() and len(wanted) <= _SMALL:
        nouns = "|".join(map(re.escape, sorted({*_words(argument), "id", "number", "no", "nr"})))
        return re.search(rf"(?:(?<!\w)(?:{nouns})\W{{1,3}}|#){wanted}{_AFTER}", said) is not None
    if re.search(f"{_BEFORE}{re.escape(wanted)}{_AFTER}", said):
        return True
    compact = re.sub(r"[\s\-./()]", "", wanted)
    if _NUMBER.fullmatch(compact) and not _IP.fullmatch(wanted):  # an account or a phone number, in groups
        before, after = (r"(?<!\d[\s\-./])", r"(?![\s\-./]\d)") if compact.lstrip("+").isdigit() else ("", "")
        pattern = f"(?<!\\w){before}{_GAP.join(map(re.escape, compact))}(?!\\w){after}"
        if re.search(pattern, said):
            return True
    address = _address(wanted)
    return address is not None and any(
        one.host == address.host and one.rest in ("", address.rest) for one in _addresses(said)
    )


class _Address(NamedTuple):
    host: str
    rest: str


def _normal(words: str) -> str:
    # Not `casefold`: it makes one word of `business.com` and `busineß.com`, which are two hosts.
    return " ".join(unicodedata.normalize("NFKC", words).lower().split())


def _address(value: str) -> _Address | None:
    found = _ADDRESS.fullmatch(value)
    return None if found is None else _parts(found)


def _addresses(words: str) -> Iterator[_Address]:
    for found in _ADDRESS.finditer(words):
        host, is_bare = found["host"], not (found["scheme"] or found["rest"])
        if not (is_bare and not host.startswith("www.") and host.rpartition(".")[2] in _FILE_ENDINGS):
            yield _parts(found)


def _parts(found: re.Match[str]) -> _Address:
    rest = (found["rest"] or "").partition("#")[0].rstrip(_ENDS).rstrip("/")
    return _Address(found["host"].removeprefix("www."), rest)


# -- where it was seen -------------------------------------------------------------------------------------------------


class UnknownTarget(NamedTuple):
    """A target that no authorised person has named."""

    value: str
    """`TOOL ARGUMENT=VALUE`, which a permission names."""
    why: str


def unknown(
    db: SessionDB,
    action: Action,
    *,
    conversation_id: ConversationId,
    person_id: PersonId | None,
    turn_id: TurnId | None,
    home: Path,
) -> list[UnknownTarget]:
    """The targets of a call that neither the person nor staff wrote in this conversation. Reads the store."""
    wanted = [pair for pair in action.targets if not action.reads or _is_address(*pair)]
    if not wanted or (
        action.reads and not db.origins.has_outside(conversation_id) and not _has_unconfirmed(home, person_id)
    ):
        return []
    written = db.origins.trusted(conversation_id, person_id)
    typed = [_typed(one) for one in written]
    tool, found = action.text.partition(" ")[0], list[UnknownTarget]()
    for argument, value in wanted:
        if any(stands_in(value, one, argument=argument) for one in typed):
            continue
        link = db.origins.first_seen(conversation_id, person_id, partial(_is_link, value)) if action.reads else None
        if link is not None and link.is_found:
            continue
        why = ""
        if len(found) < _NAMED:
            seen = db.origins.first_seen(conversation_id, person_id, partial(_holds, value), turn_id)
            place = _place(seen) if seen or not any(stands_in(value, one) for one in written) else _ATTACHED
            why = f"{argument} {' '.join(text.exactly(value))}: {place}"
        found.append(UnknownTarget(f"{tool} {argument}={value}", why))
    if (more := len(found) - _NAMED) > 0:
        found[-1] = found[-1]._replace(why=f"and {more} more")
    return found


def _has_unconfirmed(home: Path, person_id: PersonId | None) -> bool:
    """Whether the person's memory, which the prompt holds, quotes other people's words."""
    from hermes_agent.knowledge.memory import MemoryStore, is_unconfirmed

    if person_id is None:
        return False
    store = MemoryStore(home, person_id)
    return any(is_unconfirmed(entry) for target in ("memory", "user") for entry in store.read(target).entries)


_NOT_YOURS = "not in anything you wrote"
_ATTACHED = f"first seen in a file that you named with @, or in the name of one that you sent; {_NOT_YOURS}"


def _typed(message: str) -> str:
    """A person's own words in their message: without attached files, and without the names of files they sent."""
    return _SENT_FILE.sub("", mentions.words(message))


def _is_address(argument: str, value: str) -> bool:
    """Whether the value is a web address; a bare `notes.docx` is one only in an argument for addresses."""
    named = bool(_words(argument) & _ADDRESSES) or _normal(value).startswith("www.")
    return "://" in value or (named and _address(_normal(value)) is not None)


def _holds(value: str, source: str, tool: str, words: str) -> bool:
    return _stands(_normal(value).lstrip("#@"), _normal(words))


def _is_link(value: str, source: str, tool: str, words: str) -> bool:
    """Whether a row shows the address as a search result, or as a link of a page to its own site."""
    address = _address(_normal(value))
    if address is None:
        return False
    if not (source.startswith(SEARCH) and tool != "read_file"):
        hosts = {one.host for one in _addresses(_normal(source))} if _PAGES.fullmatch(source) else set()
        if address.host not in hosts:
            return False
    return any(one == address for one in _addresses(_normal(words)))


def _place(seen: FirstSeen | None) -> str:
    if seen is None:
        return "Hermes composed it: neither what was read here nor what you wrote contains it"
    if not seen.is_found:
        return f"not in the oldest messages here, and the rest are too many to search; {_NOT_YOURS}"
    if not seen.source:
        return f"first seen in somebody else's message; {_NOT_YOURS}"
    if seen.steps is None:
        return f"first seen in {seen.source}, earlier in this conversation; {_NOT_YOURS}"
    count = _COUNTS[seen.steps] if seen.steps < len(_COUNTS) else str(seen.steps)
    return f"first seen in {seen.source}, read {count} step{'' if seen.steps == 1 else 's'} ago; {_NOT_YOURS}"


def outside_source(
    db: SessionDB, words: str, *, conversation_id: ConversationId, turn_id: TurnId, person_id: PersonId | None
) -> str:
    """The outside source that a text of the model may come from; empty: only what people wrote here.

    Either the model read other people's words in this turn, or the text holds an address, a number or five words in a
    row that were only seen outside. A text that is too long to search may come from any outside row.
    """
    for origin, said in db.origins.in_turn(conversation_id, turn_id):
        if source := source_of(origin) or ", ".join(mentions.files(said)):
            return source
    plain = _normal(words)
    values = _values(plain) if len(plain) <= _LOOKED else []
    if len(plain) > _LOOKED or len(values) > _MOST_VALUES or any(len(one) > _LONGEST_VALUE for one in values):
        return _source(db.origins.first_seen(conversation_id, person_id, lambda source, tool, said: True))
    typed = [_normal(_typed(one)) for one in db.origins.trusted(conversation_id, person_id)]
    values = [one for one in values if not any(_stands(one, said) for said in typed)]
    runs = [one for one in _runs(plain) if not any(one in said for said in typed)]

    def holds(source: str, tool: str, said: str) -> bool:
        said = _normal(said)
        return any(one in said for one in runs) or any(_stands(one, said) for one in values)

    return _source(db.origins.first_seen(conversation_id, person_id, holds)) if values or runs else ""


def _source(seen: FirstSeen | None) -> str:
    return "" if seen is None else seen.source or "somebody else's message"


def _values(said: str) -> list[str]:
    """The mail addresses, web addresses and long numbers in a text."""
    numbers: list[str] = re.findall(r"(?<!\w)\+?[a-z]{0,2}\d[\da-z]{5,}(?!\w)", said)
    return list(dict.fromkeys([*_MAIL.findall(said), *(found[0] for found in _ADDRESS.finditer(said)), *numbers]))


def _runs(said: str) -> list[str]:
    parts = said.split()
    return [" ".join(parts[at : at + _RUN]) for at in range(len(parts) - _RUN + 1)]
