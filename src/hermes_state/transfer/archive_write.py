"""Archives: a zip of JSON lines with a manifest, for taking conversations elsewhere. The format is written down in
docs/contributors/archive-format.md; this module writes it, `archive_file` reads it
and `archive_import` brings it into a store.

Two scopes share the format. `conversations` is what a person exports: one, some or all conversations with their
people and routes, without credentials and without work in progress; it can be merged into any store. `store` is every
row of every table, for an operator's backup (`archive_store`); it goes into an empty store only.

The same store gives the same bytes, apart from the moment it says it was made: lines are sorted, their JSON is stable,
the zip's dates are fixed. Everything comes from one moment of the store, a page of rows at a time. On SQLite the
write-ahead log cannot start over until the archive is done, so on a busy store it grows for as long.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from hermes_config import home
from hermes_config.errors import UsageError
from hermes_config.home import advice
from hermes_config.version import VERSION
from hermes_state.errors import SessionNotFound, StateError
from hermes_state.storage.base import Connection, Store, scalar
from hermes_state.storage.statements import Queries
from hermes_state.transfer import tables

Q = Queries("archive")

FORMAT = "hermes-archive"
VERSION_WRITTEN = 1
MANIFEST = "manifest.json"
CONVERSATIONS = ("conversations", "sessions", "messages", "session_model_usage", "routes", "people", "identities")

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
    """Write an archive of the conversations that these sessions are part of (of all by default); its manifest.

    A file that is there already stays, unless `replace` says otherwise. Every text goes through `redact`, except ids
    and keys, which hold the rows together.
    """
    chosen = None if conversations is None else list(conversations)

    def files(conn: Connection) -> Iterator[tuple[str, Iterator[Line]]]:
        content = _Content(conn, chosen, progress)
        for table, lines in content.files():
            yield table, lines if redact is None else _covered(table, lines, redact)

    return write(store, path, "conversations", files, replace=replace)


def is_free_text(column: str) -> bool:
    """Whether a column is text somebody wrote. The others say which row, or which kind of row, it is."""
    return not (column == "id" or column in _KINDS or column.endswith(("_id", "_key")))


def _covered(table: str, lines: Iterator[Line], redact: Redact) -> Iterator[Line]:
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
    """The rows of a session in order. They go without their ids, which are places in one database."""
    after = 0
    while page := conn.execute(Q.messages, (session_id, after, _PAGE)).dicts():
        after = page[-1]["id"]
        for row in page:
            del row["id"]
            yield row


class _Content:
    """The lines of a `conversations` archive, file by file."""

    def __init__(self, conn: Connection, chosen: list[str] | None, progress: Progress | None) -> None:
        self._conn = conn
        self._all = chosen is None
        self._roots = sorted({_root(conn, one) for one in chosen} if chosen is not None else _roots(conn))
        self._people: set[str] = set()
        self._progress = progress
        self._done = 0

    def files(self) -> Iterator[tuple[str, Iterator[Line]]]:
        # People come last because who they are is known only when everything else was written.
        yield "conversations", self._conversations()
        yield "sessions", (row for root in self._roots for row in self._sessions(root))
        yield "messages", self._messages()
        yield "session_model_usage", self._usage()
        yield "routes", self._routes()
        people = self._listed_people()
        yield "people", iter(people)
        yield "identities", self._identities([row["id"] for row in people])

    def _conversations(self) -> Iterator[Line]:
        for root in self._roots:
            for row in self._conn.execute(Q.conversation, (root,)).dicts():
                if row["owner_id"] is not None:
                    self._people.add(row["owner_id"])
                yield row

    def _sessions(self, root: str) -> list[dict[str, Any]]:
        found = self._conn.execute(Q.sessions, (root,)).dicts()
        for row in found:
            for name in ("model_config", "origin_json"):
                row[name] = without_credentials(row[name])
        return sorted(found, key=lambda row: str(row["id"]))

    def _messages(self) -> Iterator[Line]:
        total = int(scalar(self._conn.rows(Q.count_messages))) if self._all else 0
        for root in self._roots:
            for session in self._sessions(root):
                for row in message_lines(self._conn, session["id"]):
                    if row["person_id"] is not None:
                        self._people.add(row["person_id"])
                    self._done += 1
                    yield row
                if self._progress is not None:
                    self._progress(self._done, total)

    def _usage(self) -> Iterator[Line]:
        key = tables.named("session_model_usage").key
        for root in self._roots:
            found = self._conn.execute(Q.usage, (root,)).dicts()
            yield from sorted(found, key=lambda row: [row[name] for name in key])

    def _routes(self) -> Iterator[Line]:
        if self._all:
            found = self._conn.execute(Q.routes).dicts()
        else:
            found = [row for root in self._roots for row in self._conn.execute(Q.routes_of, (root,)).dicts()]
        for row in sorted(found, key=lambda row: (row["scope"], row["session_key"])):
            row["entry_json"] = without_credentials(row["entry_json"]) or "{}"
            yield row

    def _listed_people(self) -> list[dict[str, Any]]:
        if self._all:
            found = self._conn.execute(Q.people).dicts()
        else:
            found = [row for person in self._people for row in self._conn.execute(Q.person, (person,)).dicts()]
        return sorted(found, key=lambda row: str(row["id"]))

    def _identities(self, people: list[str]) -> Iterator[Line]:
        found = [row for person in people for row in self._conn.execute(Q.identities_of, (person,)).dicts()]
        yield from sorted(found, key=lambda row: (row["platform"], row["account"], row["native_id"]))


def _roots(conn: Connection) -> set[str]:
    return {row[0] for row in conn.rows(Q.roots)}


def _root(conn: Connection, session_id: str) -> str:
    from hermes_state.ids import is_possible_id

    root = scalar(conn.rows(Q.root_of, (session_id,))) if is_possible_id(session_id) else None
    if root is None:
        raise SessionNotFound(f"there is no session {session_id!r:.80}")
    return str(root)


# -- the file ------------------------------------------------------------------------------------------------------


def write(
    store: Store,
    path: Path,
    scope: str,
    files: Callable[[Connection], Iterator[tuple[str, Iterator[Line]]]],
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """The archive at `path`, whole or not at all, for its owner's eyes only."""
    if os.path.lexists(path) and not replace:
        raise UsageError("there is a file already", where=str(path), hint="Give a new name.")
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")

    def run(conn: Connection) -> dict[str, Any]:
        with home.private_open(draft, "wb") as file:
            manifest = _fill(file, store, conn, scope, files(conn))
            file.flush()
            os.fsync(file.fileno())
        return manifest

    try:
        manifest = store.engine.read(run, snapshot=True)
        draft.replace(path)
        home.sync_folder(path.parent)
    except OSError as error:
        raise StateError(
            f"the archive cannot be written: {error.strerror}", where=str(path), hint=advice(error)
        ) from error
    finally:
        with suppress(FileNotFoundError):  # it has its name already, or was never made
            draft.unlink()
    return manifest


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
        "schema": scalar(conn.rows(Q.schema)),
        "files": {},
    }
    if scope == "store":
        numbered = [table for table in tables.every() if table.numbered]
        manifest["numbers"] = {table.name: tables.last_number(conn, table) for table in numbered}
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
"""Names whose values are not taken elsewhere. Values are not looked at."""


def without_credentials(text: str | None) -> str | None:
    """A stored JSON text without the members that are named like a credential; byte for byte the same without any.

    A text that cannot be read and might hold one becomes empty.
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
    """A structure without the members that are named like a credential."""
    if isinstance(value, dict):
        return {str(k): strip_credentials(item) for k, item in value.items() if not _CREDENTIAL.search(str(k))}
    return [strip_credentials(item) for item in value] if isinstance(value, list) else value
