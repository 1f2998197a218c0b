"""Read an archive that a stranger may have made.

An archive is trusted only after every byte of it was read once: the names in the zip, its unpacked size, each file's
checksum and number of lines, each line's columns and types, and that every message, usage row and session belongs to a
conversation of the same archive. The first fault refuses the whole archive in one line. Nothing is unpacked to disk and
no name in the zip is ever used as a path.
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hermes_config.limits import Limits
from hermes_state import ids
from hermes_state.errors import ArchiveRefused, InvalidValue
from hermes_state.transfer import archive_write, tables

_MANIFEST_BYTES = 1 << 20
_OTHER_SCOPE = {
    "store": ("this archive holds conversations, not a whole store", "hermes sessions import"),
    "conversations": ("this is a backup of a whole store", "hermes backup restore"),
}
_LARGEST = sys.float_info.max
_IDS = ("root_id", "session_id")  # they are in an index, whose entries have a size limit
_LINE_FACTOR = 8  # JSON may need more bytes for a character than the text itself
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)

Row = dict[str, Any]


@dataclass(slots=True)
class ArchivedConversation:
    """One conversation of an archive. Read `messages` before the next conversation."""

    id: str
    row: Row | None
    sessions: list[Row]
    messages: Iterator[Row]
    usage: list[Row]


class ArchiveFile:
    """`with ArchiveFile(path, limits) as archive: archive.verify()`; use its content only after that."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self._limits = limits
        try:
            # We close it: a zip that opened its file keeps it open while somebody reads a member.
            self._file = path.open("rb")
        except OSError as error:
            raise ArchiveRefused(f"the archive cannot be read: {error.strerror}", where=str(path)) from None
        try:
            self._zip = self._open_zip()
            self._check_size()
            self.manifest = self._read_manifest()
            self._check_names()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ArchiveFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    @property
    def scope(self) -> str:
        return str(self.manifest["scope"])

    def require_scope(self, scope: str) -> None:
        """Raise unless the archive has that scope; the error names the command for the other one."""
        if self.scope != scope:
            what, command = _OTHER_SCOPE[scope]
            raise ArchiveRefused(what, where=str(self.path), hint=f"Use `{command}`.")

    def rows_in(self, table: str) -> int:
        """How many rows of a table the manifest states."""
        return int(self.manifest["files"].get(f"{table}.jsonl", {}).get("rows", 0))

    def last_number(self, table: str) -> int:
        """The last number that the store had assigned in a table."""
        return int(self.manifest.get("numbers", {}).get(table, 0))

    def verify(self) -> None:
        """Read everything once; raise `ArchiveRefused` at the first fault."""
        names = [table.name for table in (*tables.every(), *tables.KEPT)]
        if self.scope == "conversations":
            _read_all(self.conversations())
            names = ["people", "identities", "routes"]
        for table in names:
            _read_all(self.lines(table))

    def conversations(self) -> Iterator[ArchivedConversation]:
        """Each conversation with all its rows, in the order of their ids."""
        rows, sessions = _Lookahead(self.lines("conversations")), _Lookahead(self.lines("sessions"))
        messages, usage = _Lookahead(self.lines("messages")), _Lookahead(self.lines("session_model_usage"))
        before = ""
        while (first := sessions.next) is not None:
            root = first["root_id"]
            if root <= before:
                raise self._refusal(f"conversation {root[:60]!r} is out of order")
            segments = list(sessions.take_while("root_id", {root}))
            own = {row["id"] for row in segments}
            if len(own) != len(segments):
                raise self._refusal(f"conversation {root[:60]!r} holds a session twice")
            row = next(rows.take_while("id", {root}), None)
            if row is not None and row["tip_id"] not in own:
                raise self._refusal(f"conversation {root[:60]!r} continues in a session that is missing")
            said = messages.take_while("session_id", own)
            yield ArchivedConversation(root, row, segments, said, list(usage.take_while("session_id", own)))
            _read_all(said)  # when the caller skipped them
            before = root
        for name, rest in (("conversation", rows), ("message", messages), ("usage row", usage)):
            if rest.next is not None:
                raise self._refusal(f"a {name} belongs to no session of this archive")

    def lines(self, table: str) -> Iterator[Row]:
        """The rows of one file, each checked against the schema; at the end the checksum must match the manifest's."""
        name = f"{table}.jsonl"
        if name not in self.manifest["files"]:
            return
        promised = self.manifest["files"][name]
        digest, rows = hashlib.sha256(), 0
        try:
            with self._zip.open(name) as member:
                longest = _LINE_FACTOR * self._limits.message_bytes
                while line := member.readline(longest):
                    digest.update(line)
                    rows += 1
                    yield self._decode(table, line, rows)
        except _BROKEN as error:
            raise self._refusal(f"{name} is damaged") from error
        if rows != promised["rows"] or digest.hexdigest() != promised["sha256"]:
            raise self._refusal(f"{name} was changed after it was written: its checksum does not fit")

    # -- checks ------------------------------------------------------------------------------------------

    def _open_zip(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self._file)
        except _BROKEN as error:
            raise self._refusal("it is not a readable zip") from error

    def _check_size(self) -> None:
        members, limits = self._zip.infolist(), self._limits
        if len(members) > limits.import_max_files:
            raise self._refusal(f"it holds {len(members):,} files", hint="See import_max_files in the limits.")
        unpacked, size = sum(member.file_size for member in members), self.path.stat().st_size
        if unpacked > min(limits.import_max_bytes, limits.import_max_ratio * max(size, 1)):
            raise self._refusal(f"it would unpack to {unpacked:,} bytes", hint="See import_max_bytes in the limits.")

    def _check_names(self) -> None:
        """After the version check: a newer format may have unknown files, and the version is then the better error."""
        names = self._zip.namelist()
        known = {archive_write.MANIFEST, *(f"{table.name}.jsonl" for table in (*tables.every(), *tables.KEPT))}
        for name in names:
            if name not in known or names.count(name) > 1:
                raise self._refusal(f"it holds an unexpected file: {name[:80]!r}")

    def _read_manifest(self) -> dict[str, Any]:
        if archive_write.MANIFEST not in self._zip.namelist():
            raise self._refusal("it has no manifest.json")
        try:
            with self._zip.open(archive_write.MANIFEST) as member:
                text = member.read(_MANIFEST_BYTES + 1)
            manifest = json.loads(text) if len(text) <= _MANIFEST_BYTES else None
        except _BROKEN as error:
            raise self._refusal("its manifest is damaged") from error
        if not isinstance(manifest, dict) or manifest.get("format") != archive_write.FORMAT:
            raise self._refusal("it is not a Hermes archive")
        version = manifest.get("version")
        if not isinstance(version, int) or version < 1:
            raise self._refusal("its manifest has no version")
        if version > archive_write.VERSION_WRITTEN:
            raise self._refusal(
                f"it has format version {version}, this Hermes reads up to {archive_write.VERSION_WRITTEN}",
                hint="Install the newer Hermes.",
            )
        files, numbers = manifest.get("files"), manifest.get("numbers", {})
        counted = isinstance(numbers, dict) and all(map(_is_number, numbers.values()))
        if manifest.get("scope") not in ("conversations", "store") or not isinstance(files, dict) or not counted:
            raise self._refusal("its manifest is not complete")
        present = set(self._zip.namelist()) - {archive_write.MANIFEST}
        if present != set(files) or not all(_is_manifest_entry(promise) for promise in files.values()):
            raise self._refusal("its manifest does not match its files")
        return manifest

    def _decode(self, table: str, line: bytes, number: int) -> Row:
        where = f"{table}.jsonl, line {number}"
        try:
            said = json.loads(line.decode())
        except ValueError:
            raise self._refusal(f"{where} is not JSON") from None
        if not isinstance(said, dict) or not line.endswith(b"\n"):
            raise self._refusal(f"{where} is not one whole row")
        try:
            return _typed_row(table, said, careful=b"\\u" in line)
        except InvalidValue as error:
            raise self._refusal(f"{where}: {error.what}") from None

    def _refusal(self, reason: str, *, hint: str = "") -> ArchiveRefused:
        return ArchiveRefused(
            f"this archive cannot be used: {reason}; nothing was changed", where=str(self.path), hint=hint
        )


def _read_all(rows: Iterator[object]) -> None:
    for _ in rows:
        pass


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**62


def _is_manifest_entry(promise: Any) -> bool:
    return isinstance(promise, dict) and _is_number(promise.get("rows")) and isinstance(promise.get("sha256"), str)


class _Shape(NamedTuple):
    """The columns of a table, for comparison with a line."""

    columns: dict[str, tables.TableColumn]
    blank: Row
    required: frozenset[str]
    ids: frozenset[str]


@functools.cache
def _shape(name: str) -> _Shape:
    table = tables.named(name)
    numbered = table.key if table.numbered else ()  # the database assigns the number when the line has none
    return _Shape(
        columns={column.name: column for column in table.columns},
        blank={column.name: column.default if column.required else None for column in table.columns},
        required=frozenset(
            c.name for c in table.columns if c.required and c.default is None and c.name not in numbered
        ),
        ids=frozenset(c.name for c in table.columns if c.kind == "TEXT" and (c.name in table.key or c.name in _IDS)),
    )


def _typed_row(table: str, said: Row, *, careful: bool) -> Row:
    """The row with all columns of its table. `careful`: an escape may hide text that cannot be stored."""
    shape = _shape(table)
    row = dict(shape.blank)
    for name, value in said.items():
        column = shape.columns.get(name)
        if column is None:
            raise InvalidValue(f"there is no column {name[:60]!r}")
        if value is None:
            continue
        row[name] = _value(column, value, careful)
        if name in shape.ids and value != "":
            ids.checked_id(value, what=name)
    for name in shape.required:
        if row[name] is None:
            raise InvalidValue(f"{name} is missing")
    return row


def _value(column: tables.TableColumn, value: Any, careful: bool) -> Any:
    if column.kind == "TEXT" and isinstance(value, str):
        if careful and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
            raise InvalidValue(f"{column.name} holds a character that cannot be stored")
        return value
    if column.kind == "INTEGER" and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if column.kind == "REAL" and isinstance(value, (int, float)) and abs(value) <= _LARGEST:
        return float(value)
    if column.kind == "BLOB" and isinstance(value, str):
        try:
            return binascii.unhexlify(value)
        except ValueError:
            pass  # reported below, with every other value of a wrong kind
    raise InvalidValue(f"{column.name} is not {column.kind}")


class _Lookahead:
    """A stream of rows with a look at the next one."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.next: Row | None = next(rows, None)

    def take_while(self, column: str, wanted: set[str]) -> Iterator[Row]:
        while self.next is not None and self.next[column] in wanted:
            row, self.next = self.next, next(self._rows, None)
            yield row
