"""The session key: one text for each route. Different routes always have different keys.

    agent:main:PLATFORM:dm:42               a direct chat, with :77 behind it a topic of it
    agent:main:PLATFORM:group:-100:42       one person in a group (or, without isolation, the group: ...:group:-100)
    agent:main:PLATFORM:group:-100:%thread:7    a topic of a group, shared by everybody in it
    agent:main:discord:thread:900:901       a thread; 901 is the thread, as it is for a dm

Parts are joined by `:`, and special characters inside a part are escaped, such as `%3A`; so a part that names the kind
of the next one (`%user`, `%thread`) cannot be an id. Where hermes-agent's key is unambiguous, ours is the same. Where
it is not (a group's topic 7 and its user 7, ids with a colon), ours differs and `aliases` gives theirs, so that routes
of existing homes are found again.

A route is: platform, kind of chat, chat, thread and, where people have separate conversations, the person. A key longer
than a row can hold has a SHA-256 in place of its longest part.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

from hermes_state.ids import MAX_ID_BYTES, SessionKey

if TYPE_CHECKING:
    from gateway.routes.source import SessionSource

_UNSAFE = re.compile(r"[:%\x00-\x1f\x7f\ud800-\udfff]|\.(?=\.)|(?<=\.)\.")


class KeyParts(NamedTuple):
    """The parts of a key; "" for a part that is missing or does not count."""

    profile: str
    platform: str
    chat_type: str
    chat: str
    thread: str
    person: str


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> SessionKey:
    """The key of the route that `source` comes from."""
    return key_of(key_parts(source, group_sessions_per_user, thread_sessions_per_user, profile))


def key_parts(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> KeyParts:
    """The parts that count: a direct chat has no person, a thread has one only if threads are split by person."""
    platform = str(source.platform.value)
    chat, thread, person = (
        str(part) if part else "" for part in (source.chat_id, source.thread_id, source.participant)
    )
    kind = str(source.chat_type or "")
    if kind == "dm":
        person = "" if chat else person
    elif not group_sessions_per_user or (thread and not thread_sessions_per_user):
        person = ""
    return KeyParts(profile or "main", platform, kind, chat, thread, person)


def key_of(key: KeyParts) -> SessionKey:
    if _UNSAFE.search(" ".join(key)):  # most ids are plain
        key = KeyParts(*map(_escaped, key))
    chat, thread, person = key.chat, key.thread, key.person
    parts = ["agent", key.profile, key.platform, key.chat_type]
    if chat or (key.chat_type != "dm" and (thread or person)):
        parts.append(chat)
    if key.chat_type == "dm":
        parts += ["%user", person] if person else []
        parts += ["%thread", thread] if thread and not chat and not person else [thread] if thread else []
    elif thread and person:
        parts += [thread, person]
    elif thread:
        parts += [thread] if key.chat_type == "thread" else ["%thread", thread]
    elif person:
        parts += ["%user", person] if key.chat_type == "thread" else [person]
    return SessionKey(_bounded(parts))


def aliases(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> tuple[SessionKey, ...]:
    """hermes-agent's key of the route where it differs from ours. It may mean another route: compare `key_parts`."""
    key = key_parts(source, group_sessions_per_user, thread_sessions_per_user, profile)
    given = (key.chat, key.thread, key.person)
    if key.chat_type == "dm":
        given = (key.chat or key.person, key.thread, "")
    theirs = ":".join(["agent", key.profile, key.platform, key.chat_type, *(part for part in given if part)])
    return () if theirs == key_of(key) else (SessionKey(theirs),)


def is_shared_multi_user_session(
    source: SessionSource, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False
) -> bool:
    """Whether several people share the conversation of this route."""
    if source.chat_type == "dm":
        return False
    return not group_sessions_per_user or (bool(source.thread_id) and not thread_sessions_per_user)


def _escaped(part: str) -> str:
    return _UNSAFE.sub(_percent, part)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _bounded(parts: list[str]) -> str:
    key = ":".join(parts)
    while len(key.encode()) > MAX_ID_BYTES:
        longest = max(range(len(parts)), key=lambda at: len(parts[at].encode()))
        parts[longest] = "%sha256-" + hashlib.sha256(parts[longest].encode()).hexdigest()
        key = ":".join(parts)
    return key
