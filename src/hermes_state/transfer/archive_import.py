"""Import an archive into a store.

The whole archive is read and checked before anything is written (`archive_read`). Then each conversation is imported in
its own transaction, complete: its sessions, messages and usage. A conversation that the store already has stays
unchanged and is reported, also when its messages differ. So a second run completes a run that was killed.

Messages get new ids in this database, in the same order. A title that the owner already uses gets a number.

An archive brings no rights and no routes, not even into an empty store, because anybody can write one. All its
conversations belong to the owner who imports them. People, accounts and routes are not imported, and no session keeps
the chat it came from: else a chat could be led to a conversation that the maker of the archive can read. A backup
(`hermes backup restore`) brings everything.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from hermes_state.conversations import chain, titles
from hermes_state.ids import LOCAL_OWNER
from hermes_state.maintenance.dry_run import run_and_roll_back
from hermes_state.people.people import People
from hermes_state.storage.base import Connection, Store, insert_statement
from hermes_state.storage.statements import Queries
from hermes_state.transfer import tables
from hermes_state.transfer.archive_read import ArchivedConversation, ArchiveFile, Row
from hermes_state.transfer.archive_write import Progress, encode_line, message_lines

Q = Queries("archive")
T = TypeVar("T")

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
    """The result of an import, or with `dry_run` the expected one. Conversations by their ids."""

    imported: list[str] = field(default_factory=list)
    already_here: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    """The same id with other messages: ours stayed."""
    sessions: int = 0
    messages: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    """Session id → its new title, because its own was taken."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Rows of the archive that give rights or routes, by table; they are never imported."""


def import_archive(
    store: Store, path: Path, *, dry_run: bool = False, progress: Progress | None = None
) -> ImportReport:
    """Merge a `conversations` archive into the store."""

    def write(fn: Callable[[Connection], T]) -> T:
        """Run `fn` in one transaction, which a dry run rolls back."""
        return run_and_roll_back(store.engine, lambda one: one.write(fn)) if dry_run else store.engine.write(fn)

    report = ImportReport()
    with ArchiveFile(path, store.limits) as source:
        source.require_scope("conversations")
        source.verify()
        report.left_out = {name: rows for name in _RIGHTS if (rows := source.rows_in(name))}
        done, total = 0, source.rows_in("messages")
        for conversation in source.conversations():
            with tempfile.SpooledTemporaryFile(max_size=_MEMORY) as spool:
                messages, digest = _spool(conversation, spool)
                here = store.engine.read(partial(_digest_here, conversation=conversation), snapshot=True)
                if here is None:
                    report.renamed |= write(partial(_add_conversation, store, conversation=conversation, spool=spool))
                    report.imported.append(conversation.id)
                    report.sessions += len(conversation.sessions)
                    report.messages += messages
                else:
                    (report.already_here if here == digest else report.different).append(conversation.id)
            done += messages
            if progress is not None:
                progress(done, total)
        # Parents in other conversations, now that all conversations are stored.
        other = set(report.different)
        linked = (row for row in source.lines("sessions") if row["root_id"] not in other)
        for page in tables.pages((row["parent_session_id"], row["id"]) for row in linked):
            write(partial(_link, page=page))
    return report


def _spool(conversation: ArchivedConversation, spool: IO[bytes]) -> tuple[int, bytes]:
    """The number of messages of an archived conversation and its checksum; its lines are written to `spool`.

    The engine may have to repeat the transaction, and a zip can only be read forward: so the lines wait in a file.
    """
    count, digest = 0, _digest(row["id"] for row in conversation.sessions)
    for row in conversation.messages:
        line = encode_line("messages", row)
        digest.update(line)
        spool.write(line)
        count += 1
    return count, digest.digest()


def _digest(sessions: Iterable[str]) -> hashlib._Hash:
    """The beginning of a checksum over a conversation's sessions and messages, without titles and counters."""
    return hashlib.sha256(json.dumps(sorted(sessions)).encode())


def _digest_here(conn: Connection, conversation: ArchivedConversation) -> bytes | None:
    """The checksum of the conversation in this store; None when the store has nothing of it."""
    names = json.dumps([row["id"] for row in conversation.sessions])
    if not conn.rows(Q.known, (names, conversation.id)):
        return None
    sessions = sorted(str(row["id"]) for row in conn.execute(Q.sessions, (conversation.id,)).dicts())
    digest = _digest(sessions)
    for session in sessions:
        for row in message_lines(conn, session):
            digest.update(encode_line("messages", row))
    return digest.digest()


# -- inside the transactions ---------------------------------------------------------------------------------------


def _add_conversation(
    store: Store, conn: Connection, conversation: ArchivedConversation, spool: IO[bytes]
) -> dict[str, str]:
    """Store a new conversation; returns the titles that had to be changed."""
    owner = People(store).owner_in(conn).id
    renamed = _free_titles(conn, conversation.sessions)
    rows = [{**row, **NO_CHAT, "title": renamed.get(row["id"], row["title"])} for row in conversation.sessions]
    _insert(conn, "sessions", [{**row, "parent_session_id": None} for row in rows])
    if conversation.row is not None:
        _insert(conn, "conversations", [{**conversation.row, "owner_id": owner}])
    _link(conn, [(row["parent_session_id"], row["id"]) for row in rows])
    if conversation.row is None:  # an old home: only the sessions of the conversation are known
        chain.found(conn, conversation.id, "new", None, owner, min(row["started_at"] for row in rows))
    messages = tables.named("messages")
    names = [name for name in messages.names if name not in messages.key]
    spool.seek(0)
    for page in tables.pages(json.loads(line) for line in spool):
        conn.many(insert_statement("messages", names), [tuple(map(row.get, names)) for row in page])
    _insert(conn, "session_model_usage", conversation.usage)
    return renamed


def _insert(conn: Connection, name: str, rows: list[Row]) -> None:
    table = tables.named(name)
    if rows:
        conn.many(insert_statement(name, table.names), [tuple(map(row.get, table.names)) for row in rows])


def _link(conn: Connection, page: list[tuple[str | None, str]]) -> None:
    for parent, child in page:
        if parent is not None and parent != child:
            conn.run(Q.link, (parent, child, LOCAL_OWNER, parent, LOCAL_OWNER))


def _free_titles(conn: Connection, sessions: list[Row]) -> dict[str, str]:
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for row in sessions:
        title, number = row["title"], 1
        while title is not None and (title in taken or conn.rows(titles.Q.holder, (title,))):
            number += 1
            title = f"{row['title'][:_TITLE_ROOM]} #{number}"
        if title is not None:
            taken.add(title)
        if title != row["title"]:
            renamed[row["id"]] = title
    return renamed
