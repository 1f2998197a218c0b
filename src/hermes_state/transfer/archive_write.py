"""Write archives: a zip of JSON lines with a manifest, for moving conversations.

`archive_read` reads it, `archive_import` imports it. The format: docs/contributors/archive-format.md.

Two scopes share the format. `conversations` is a person's export: one, some or all conversations with their people and
routes, without credentials and without work in progress; any store can merge it. `store` is every row of every table,
for an operator's backup (`copy_all`); only an empty store can load it.

The same store gives the same bytes, apart from the stated time: lines are sorted, their JSON is stable, the zip's dates
are fixed. Everything comes from one snapshot of the store, one page of rows at a time. On SQLite the write-ahead log
cannot restart until the archive is complete, so on a busy store it grows meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from hermes_config.errors import UsageError
from hermes_config.version import VERSION
from hermes_state.conversations import chain, transcript
from hermes_state.errors import SessionNotFound
from hermes_state.ids import is_possible_id
from hermes_state.storage import schema
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries, Statement
from hermes_state.transfer import tables
from hermes_state.transfer.sqlite_copy import drafted

Q = Queries("archive")

FORMAT = "hermes-archive"
VERSION_WRITTEN = 2
MANIFEST = "manifest.json"

Line = Mapping[str, Any]
Progress = Callable[[int, int], None]
Redact = Callable[[str], str]
_PAGE = 200
_KINDS = frozenset(
    {"role", "source", "scope", "platform", "account", "content_kind", "escaped", "origin_kind", "end_reason"}
)
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def export(
    store: Store,
    path: Path,
    *,
    conversations: Iterable[str] | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    redact: Redact | None = None,
) -> dict[str, Any]:
    """Write an archive of the conversations of these sessions (all by default); returns its manifest.

    An existing file stays, unless `replace` says otherwise. Every text goes through `redact`, except ids and keys,
    which link the rows.
    """
    chosen = None if conversations is None else list(conversations)

    def files(conn: Connection) -> Iterator[tuple[str, Iterator[Line]]]:
        for table, lines in _files(conn, chosen, progress):
            yield table, lines if redact is None else _redacted(table, lines, redact)

    return write(store, path, "conversations", files, replace=replace)


def is_free_text(column: str) -> bool:
    """Whether a column is text that somebody wrote. The others identify a row or its kind."""
    return not (column == "id" or column in _KINDS or column.endswith(("_id", "_key")))


def _redacted(table: str, lines: Iterator[Line], redact: Redact) -> Iterator[Line]:
    texts = [column.name for column in tables.named(table).columns if column.kind == "TEXT"]
    free = [name for name in texts if is_free_text(name)]
    for row in lines:
        yield {**row, **{name: redact(row[name]) for name in free if row.get(name)}}


def encode_line(table: str, row: Line) -> bytes:
    """One row as one line: its columns by name, in alphabetical order, without those that are NULL."""
    said: dict[str, Any] = {}
    for column in tables.named(table).columns:
        value = row.get(column.name)
        if value is not None:
            said[column.name] = bytes(value).hex() if column.kind == "BLOB" else value
    return f"{_encode(said)}\n".encode()


def message_lines(conn: Connection, session_id: str) -> Iterator[dict[str, Any]]:
    """The rows of a session in order, without their ids, which belong to one database."""
    after = 0
    while page := conn.execute(Q.messages, (session_id, after, _PAGE)).dicts():
        after = page[-1]["id"]
        for row in page:
            del row["id"]
            yield row


def _files(
    conn: Connection, chosen: list[str] | None, progress: Progress | None
) -> Iterator[tuple[str, Iterator[Line]]]:
    """The lines of a `conversations` archive, file by file; each file is read to its end before the next."""
    everything = chosen is None
    roots = sorted(
        {_root(conn, one) for one in chosen} if chosen is not None else {row[0] for row in conn.rows(Q.roots)}
    )
    people: set[str] = set()

    def of_each(statement: Statement, *key: str) -> Iterator[dict[str, Any]]:
        for root in roots:
            yield from sorted(conn.execute(statement, (root,)).dicts(), key=itemgetter(*key))

    def collecting_people(rows: Iterator[Line], column: str) -> Iterator[Line]:
        for row in rows:
            if row[column] is not None:
                people.add(row[column])
            yield row

    def messages() -> Iterator[Line]:
        done, total = 0, int(scalar(conn.rows(transcript.Q.count_all))) if everything else 0
        for session in of_each(Q.sessions, "id"):
            for row in message_lines(conn, session["id"]):
                done += 1
                yield row
            if progress is not None:
                progress(done, total)

    yield "conversations", collecting_people(of_each(Q.conversation, "id"), "owner_id")
    yield "sessions", (_stripped(row, "model_config", "origin_json") for row in of_each(Q.sessions, "id"))
    yield "messages", collecting_people(messages(), "person_id")
    yield "session_model_usage", of_each(Q.usage, *tables.named("session_model_usage").key)
    routes = conn.execute(Q.routes).dicts() if everything else list(of_each(Q.routes_of, "session_key"))
    routes.sort(key=itemgetter("scope", "session_key"))
    yield "routes", ({**row, "entry_json": without_credentials(row["entry_json"]) or "{}"} for row in routes)
    # All people are known only now, after everything else was written.
    listed = conn.execute(Q.people).dicts() if everything else []
    listed += [row for person in people if not everything for row in conn.execute(Q.person, (person,)).dicts()]
    listed.sort(key=itemgetter("id"))
    yield "people", iter(listed)
    identities = [row for one in listed for row in conn.execute(Q.identities_of, (one["id"],)).dicts()]
    yield "identities", iter(sorted(identities, key=itemgetter("platform", "account", "native_id")))


def _stripped(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**row, **{name: without_credentials(row[name]) for name in names}}


def _root(conn: Connection, session_id: str) -> str:
    root = chain.root(conn, session_id) if is_possible_id(session_id) else None
    if root is None:
        raise SessionNotFound(f"there is no session {session_id!r:.80}")
    return root


# -- the file ------------------------------------------------------------------------------------------------------


def write(
    store: Store,
    path: Path,
    scope: str,
    files: Callable[[Connection], Iterator[tuple[str, Iterator[Line]]]],
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """Write the archive to `path`, completely or not at all, readable by its owner only."""
    if os.path.lexists(path) and not replace:
        raise UsageError("the file already exists", where=str(path), hint="Choose a new name.")
    with drafted(path, "the archive cannot be written: {}") as draft:

        def run(conn: Connection) -> dict[str, Any]:
            with draft.open("wb") as file:
                return _fill(file, store, conn, scope, files(conn))

        return store.engine.read(run, snapshot=True)


def _fill(
    file: IO[bytes], store: Store, conn: Connection, scope: str, files: Iterator[tuple[str, Iterator[Line]]]
) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION_WRITTEN,
        "scope": scope,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(store.clock())),
        "made_by": VERSION,
        "engine": conn.dialect,
        "schema": scalar(conn.rows(schema.Q.version)),
        "files": {},
    }
    if scope == "store":
        manifest["numbers"] = {one.name: tables.last_number(conn, one) for one in tables.every() if one.numbered}
    with zipfile.ZipFile(file, "w") as archive:
        for table, lines in files:
            with archive.open(_member(f"{table}.jsonl"), "w", force_zip64=True) as member:
                manifest["files"][f"{table}.jsonl"] = _fill_member(member, table, lines)
        text = json.dumps(manifest, ensure_ascii=False, sort_keys=True, indent=2)
        archive.writestr(_member(MANIFEST), f"{text}\n")
    return manifest


def _fill_member(member: IO[bytes], table: str, lines: Iterator[Line]) -> dict[str, Any]:
    digest, rows, size = hashlib.sha256(), 0, 0
    for row in lines:
        line = encode_line(table, row)
        member.write(line)
        digest.update(line)
        rows += 1
        size += len(line)
    return {"rows": rows, "bytes": size, "sha256": digest.hexdigest()}


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # dated 1980, so that the same content gives the same bytes
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o600 << 16
    return info


# -- credentials ---------------------------------------------------------------------------------------------------

_CREDENTIAL = re.compile(
    r"api_?key|secret|passw|credential|authorization|cookie|(access|refresh|bot|auth)_?token|(^|_)token$", re.IGNORECASE
)
"""Keys whose values are not exported, whatever the values are."""


def without_credentials(text: str | None) -> str | None:
    """A stored JSON text without members whose names are those of credentials; unchanged if there are none.

    A text that cannot be parsed and might contain one becomes empty.
    """
    if not text:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return "{}" if re.search(r"key|token|secret|passw|credential|authorization|cookie", text, re.I) else text
    clean = strip_credentials(value)
    return text if clean == value else json.dumps(clean, ensure_ascii=False)


def strip_credentials(value: Any) -> Any:
    """A structure without members whose names are those of credentials."""
    if isinstance(value, dict):
        return {str(k): strip_credentials(item) for k, item in value.items() if not _CREDENTIAL.search(str(k))}
    return [strip_credentials(item) for item in value] if isinstance(value, list) else value
