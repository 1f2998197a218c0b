"""Bringing an archive into a store.

The archive is read to its end and checked before anything is written (`archive_file`). Then each conversation comes in
a transaction of its own, whole: its sessions, messages and usage. A conversation that is here already stays as it is
and is reported, also when it says something else. So a run that was killed is completed by running it again.

Messages get new ids in this database, in the same order. A title that the owner has already gets a number.

An archive brings no rights and no routes, not even into an empty store, because anybody can write one. All of its
conversations belong to the owner who imports them. People, accounts and routes stay in the file, and no session
keeps the chat it came from: else a chat could be led to a conversation that the maker of the archive can read. A
backup (`hermes backup restore`) brings everything.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from hermes_state.conversations import chain
from hermes_state.ids import LOCAL_OWNER, PersonId
from hermes_state.maintenance.dry_run import run_and_roll_back
from hermes_state.people.people import People
from hermes_state.storage.base import Connection, Store
from hermes_state.storage.statements import Queries
from hermes_state.transfer import archive_write, tables
from hermes_state.transfer.archive_read import ArchivedConversation, ArchiveFile, Row

Q = Queries("archive")

_MEMORY = 4 << 20
_TITLE_ROOM = 90
_RIGHTS = ("people", "identities", "routes")
NO_CHAT = dict.fromkeys(
    (
        "session_key", "user_id", "chat_id", "chat_type", "thread_id", "origin_json", "profile_name",
        "handoff_state", "handoff_platform", "handoff_error",
    )
)  # fmt: skip
"""The columns by which a message, a search for a lost route or a gateway finds the session of a chat."""


@dataclass(slots=True)
class ImportReport:
    """What an import did, or with `dry_run` would do. Conversations by their ids."""

    imported: list[str] = field(default_factory=list)
    already_here: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    """The same id with other messages: ours was kept."""
    sessions: int = 0
    messages: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    """Session id → the title it got because its own was taken."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Rows of the archive that give rights or routes, by table; they are never imported."""


def import_archive(
    store: Store, path: Path, *, dry_run: bool = False, progress: archive_write.Progress | None = None
) -> ImportReport:
    """Merge a `conversations` archive into the store."""
    with ArchiveFile(path, store.limits) as source:
        source.require_scope("conversations")
        source.verify()
        return _Import(store, source, dry_run, progress).run()


class _Import:
    def __init__(
        self, store: Store, source: ArchiveFile, dry_run: bool, progress: archive_write.Progress | None
    ) -> None:
        self._store = store
        self._source = source
        self._dry_run = dry_run
        self._progress = progress
        self._report = ImportReport()

    def run(self) -> ImportReport:
        self._report.left_out = {name: rows for name in _RIGHTS if (rows := self._source.rows_in(name))}
        done, total = 0, self._source.rows_in("messages")
        for conversation in self._source.conversations():
            with tempfile.SpooledTemporaryFile(max_size=_MEMORY) as spool:
                done += self._conversation(conversation, spool)
            if self._progress is not None:
                self._progress(done, total)
        self._links()
        return self._report

    def _conversation(self, conversation: ArchivedConversation, spool: IO[bytes]) -> int:
        """One conversation, all or nothing; how many messages the archive has of it."""
        # The engine may have to repeat the transaction, and a zip can be read forward only: so the lines wait here.
        messages, said = 0, _Said(row["id"] for row in conversation.sessions)
        for row in conversation.messages:
            line = archive_write.encode_line("messages", row)
            said.add(line)
            spool.write(line)
            messages += 1
        names = json.dumps([row["id"] for row in conversation.sessions])
        known = self._store.engine.read(lambda conn: conn.rows(Q.known, (names, conversation.id)))
        if known:
            same = self._store.engine.read(lambda conn: _said_here(conn, conversation.id), snapshot=True)
            here = self._report.already_here if same == said.digest() else self._report.different
            here.append(conversation.id)
            return messages
        renamed = self._write(lambda conn: self._add(conn, conversation, spool))
        self._report.imported.append(conversation.id)
        self._report.sessions += len(conversation.sessions)
        self._report.messages += messages
        self._report.renamed.update(renamed)
        return messages

    def _links(self) -> None:
        """Parents in other conversations, now that all of them are here."""
        other = set(self._report.different)
        rows = (row for row in self._source.lines("sessions") if row["root_id"] not in other)
        links = ((row["parent_session_id"], row["id"]) for row in rows if row["parent_session_id"] is not None)
        for page in tables.pages(links):
            self._write(partial(_add_links, page=page))

    def _add(self, conn: Connection, conversation: ArchivedConversation, spool: IO[bytes]) -> dict[str, str]:
        owner = People(self._store).owner_in(conn).id
        return _add_conversation(conn, conversation, spool, owner)

    def _write(self, fn: Callable[[Connection], Any]) -> Any:
        """`fn` in one transaction, which a dry run takes back."""
        if not self._dry_run:
            return self._store.engine.write(fn)
        return run_and_roll_back(self._store.engine, lambda engine: engine.write(fn))


class _Said:
    """A checksum of what a conversation says: its sessions and their messages, not their titles or counters."""

    def __init__(self, sessions: Iterable[str]) -> None:
        self._sum = hashlib.sha256(json.dumps(sorted(sessions)).encode())

    def add(self, line: bytes) -> None:
        self._sum.update(line)

    def digest(self) -> bytes:
        return self._sum.digest()


def _said_here(conn: Connection, root: str) -> bytes:
    sessions = sorted(str(row["id"]) for row in conn.execute(Q.sessions, (root,)).dicts())
    said = _Said(sessions)
    for session in sessions:
        for row in archive_write.message_lines(conn, session):
            said.add(archive_write.encode_line("messages", row))
    return said.digest()


# -- inside the transactions ---------------------------------------------------------------------------------------


def _add_conversation(
    conn: Connection, conversation: ArchivedConversation, spool: IO[bytes], owner: PersonId
) -> dict[str, str]:
    """Put a conversation in that is not here; the titles that had to be changed."""
    sessions, messages, usage = map(tables.named, ("sessions", "messages", "session_model_usage"))
    renamed = _free_titles(conn, conversation.sessions)
    rows = [{**row, **NO_CHAT, "title": renamed.get(row["id"], row["title"])} for row in conversation.sessions]
    tables.fill(conn, sessions, [as_tuple(sessions.names, row) for row in rows])
    if conversation.row is not None:
        named = tables.named("conversations")
        conn.run(tables.insert(named), as_tuple(named.names, {**conversation.row, "owner_id": owner}))
    _add_links(conn, [(row["parent_session_id"], row["id"]) for row in conversation.sessions])
    if conversation.row is None:  # an old home: the conversation is known by its sessions only
        begun = min(row["started_at"] for row in conversation.sessions)
        root = conversation.id
        chain.found_conversation(conn, root, tip_id=root, kind="new", origin=None, owner=owner, now=begun)
        chain.settle(conn, root)
    names = [name for name in messages.names if name not in messages.key]
    spool.seek(0)
    for page in tables.pages(json.loads(line) for line in spool):
        conn.many(tables.insert(messages, names), [tuple(map(row.get, names)) for row in page])
    if conversation.usage:
        conn.many(tables.insert(usage), [as_tuple(usage.names, row) for row in conversation.usage])
    return renamed


def _free_titles(conn: Connection, sessions: list[Row]) -> dict[str, str]:
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for row in sessions:
        title, number = row["title"], 1
        while title is not None and (title in taken or conn.rows(Q.title_holder, (title,))):
            number += 1
            title = f"{row['title'][:_TITLE_ROOM]} #{number}"
        if title is not None:
            taken.add(title)
        if title != row["title"]:
            renamed[row["id"]] = title
    return renamed


def _add_links(conn: Connection, page: list[tuple[str | None, str]]) -> None:
    for parent, child in page:
        if parent is not None and parent != child:
            conn.run(Q.link, (parent, child, LOCAL_OWNER, parent, LOCAL_OWNER))


def as_tuple(names: Iterable[str], row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
