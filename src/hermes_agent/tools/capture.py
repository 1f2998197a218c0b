"""The output of a child process in bounded memory.

The beginning and the end are held; once there is more than the beginning, everything goes to the call's result file as
it comes, up to that file's limit. The file holds the bytes as they were printed; `read_file` cleans what it shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

from hermes_agent.tools import results
from hermes_agent.tools.base import ToolContext
from hermes_config.home import private_open

_BYTES_A_CHARACTER = 4  # at most, in UTF-8


class Capture:
    """Collects bytes; `text` is what the model reads of them. A context manager, for the file's sake."""

    def __init__(self, *, tool_name: str, ctx: ToolContext) -> None:
        self._tool_name = tool_name
        self._ctx = ctx
        self._limit = ctx.db.limits.tool_result_chars
        self._room = self._limit * _BYTES_A_CHARACTER
        self._head = bytearray()
        self._tail = bytearray()
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._kept = 0
        self._failed = False
        self.size = 0

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, data: bytes) -> None:
        self.size += len(data)
        free = self._room - len(self._head)
        if free >= len(data) and not self._tail:
            self._head += data
            return
        if self._file is None:
            self._open()
        self._write(data)
        self._head += data[: max(free, 0)]
        self._tail += data[max(free, 0) :]
        if len(self._tail) > 2 * self._room:
            del self._tail[: -self._room]

    def text(self) -> str:
        """Clean text within the limit, or the description of binary output."""
        if results.is_binary(self._head):
            self.__exit__()
            if self._path is not None:
                self._path.unlink(missing_ok=True)
            return results.describe_binary(bytes(self._head), size=self.size)
        head = results.text_of(bytes(self._head))
        if not self._tail:
            return head  # the registry cuts it if it has to, and keeps the whole
        tail = results.text_of(bytes(self._tail[-self._room :]))
        note = results.where_note(self._path)
        if self._path is not None and self._kept < self.size:
            note = f"{note} (its first {self._kept:,} bytes)"
        return results.head_and_tail(head, tail, limit=self._limit, whole=self.size, note=note, unit="bytes")

    def _open(self) -> None:
        if self._failed:
            return
        try:
            self._path = results.new_file(tool_name=self._tool_name, ctx=self._ctx)
            self._file = private_open(self._path, "wb")
        except OSError:
            self._failed, self._path = True, None
            return
        self._write(bytes(self._head))

    def _write(self, data: bytes) -> None:
        room = self._ctx.db.limits.result_file_bytes - self._kept
        if self._file is None or room <= 0:
            return
        try:
            self._file.write(data[:room])
            self._kept += min(len(data), room)
        except OSError:
            # A full disk: the model still reads head and tail, and is told that there is no more.
            self.__exit__()
            self._failed, self._path = True, None
