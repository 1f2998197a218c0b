"""A client that knows nothing of Hermes but `docs/contributors/rpc.md`, which it reads first.

It refuses to send what the document does not have, and fails on a frame that the document does not explain.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

PAGE = Path(__file__).parents[2] / "docs" / "contributors" / "rpc.md"
WITHIN = 20.0


class Document:
    """What the page says: methods with their parameters, events with their payload."""

    def __init__(self, text: str) -> None:
        methods, events = text.split("## Events")
        self.methods = {
            name: set(re.findall(r"^- `(\w+)` \(", about, re.MULTILINE))
            for name, about in re.findall(r"^### `([\w.]+)`.*?\n(.*?)(?=^### |\Z)", methods, re.MULTILINE | re.DOTALL)
        }
        self.results = {
            name: _names(gives)
            for name, gives in re.findall(r"^### `([\w.]+)`.*?^- gives: (.*?)$", methods, re.MULTILINE | re.DOTALL)
        }
        for name, (needed, _) in self.results.items():
            if needed == {"as session.resume"}:
                self.results[name] = self.results["session.resume"]
        rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", events, re.MULTILINE)
        self.events = {name: set(re.findall(r"(\w+)(\??)", fields)) for name, fields in rows}

    def explains(self, event: dict[str, Any]) -> bool:
        fields = self.events.get(event["type"])
        if fields is None:
            return False
        known, payload = {name for name, _ in fields}, set(event.get("payload") or ())
        needed = {name for name, may_be_missing in fields if not may_be_missing}
        return "as" in known or (payload <= known and needed <= payload)

    def fits(self, method: str, result: dict[str, Any]) -> bool:
        needed, optional = self.results[method]
        return needed <= set(result) <= needed | optional


def _names(gives: str) -> tuple[set[str], set[str]]:
    """(always there, sometimes there) of a line such as `a, b? {c, d}; when set also e`."""
    while (plain := re.sub(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]", "", gives)) != gives:
        gives = plain
    always, _, sometimes = gives.partition(";")
    names = [name.partition(":")[0].strip() for name in always.split(",")]
    more = [name.split()[-1] for name in sometimes.split(",") if name.strip()]
    return {name for name in names if not name.endswith("?")}, {name.rstrip("?") for name in (*names, *more)}


class RpcFailed(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]


class Client:
    """The frames, sent and received; how they travel is the business of those below."""

    def __init__(self) -> None:
        self.document = Document(PAGE.read_text(encoding="utf-8"))
        self.frames: list[dict[str, Any]] = []
        self._arrived: queue.Queue[str | None] = queue.Queue()
        self._number = 0
        self.asked: dict[int, str] = {}
        self.read = 0
        """How many frames were looked at by `event`."""

    def send(self, text: str) -> None:
        raise NotImplementedError

    def _take(self, within: float) -> dict[str, Any]:
        text = self._arrived.get(timeout=max(0.001, within))
        if text is None:
            raise EOFError("the server has ended")
        frame: dict[str, Any] = json.loads(text)
        assert frame["jsonrpc"] == "2.0"
        if frame.get("method") == "event":
            assert self.document.explains(frame["params"]), f"the document does not explain {frame}"
        self.frames.append(frame)
        return frame

    def _until(self, wanted: Callable[[dict[str, Any]], bool], what: str, *, since: int, within: float) -> int:
        """The place of the first frame behind `since` that is wanted."""
        deadline = time.monotonic() + within
        at = since
        while True:
            while at < len(self.frames):
                if wanted(self.frames[at]):
                    return at
                at += 1
            try:
                self._take(deadline - time.monotonic())
            except queue.Empty:
                seen = [frame.get("params", frame) for frame in self.frames[since:]]
                raise AssertionError(f"no {what} within {within:g} s; there was {seen}") from None

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        assert method in self.document.methods, f"the document has no {method}"
        assert set(params) <= self.document.methods[method], f"the document has no such parameters: {params}"
        self._number += 1
        self.asked[self._number] = method
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}))
        return self._number

    def answer(self, number: int, *, within: float = WITHIN) -> dict[str, Any]:
        at = self._until(lambda one: one.get("id") == number, f"answer to {number}", since=0, within=within)
        if "error" in self.frames[at]:
            raise RpcFailed(self.frames[at]["error"])
        result: dict[str, Any] = self.frames[at]["result"]
        assert self.document.fits(self.asked[number], result), f"{self.asked[number]} gave {sorted(result)}"
        return result

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(self.ask(method, **params))

    def event(self, kind: str, sid: str | None = None, *, within: float = WITHIN) -> dict[str, Any]:
        """The payload of the next event of this kind, in the order of the frames."""

        def fits(frame: dict[str, Any]) -> bool:
            params = frame.get("params", {})
            return bool(params.get("type") == kind and (sid is None or params.get("session_id") == sid))

        at = self._until(fits, kind, since=self.read, within=within)
        self.read = at + 1
        payload: dict[str, Any] = self.frames[at]["params"].get("payload") or {}
        return payload

    def events(self) -> list[str]:
        return [frame["params"]["type"] for frame in self.frames if frame.get("method") == "event"]

    def say(self, sid: str, text: str, *, within: float = WITHIN) -> str:
        """A prompt and its whole answer."""
        self.call("prompt.submit", session_id=sid, text=text)
        answer: str = self.event("message.complete", sid, within=within)["text"]
        return answer


class StdioClient(Client):
    """Over the pipes of a child process."""

    def __init__(self, home: Path, *, cwd: Path | None = None, **environment: str) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tui_gateway.entry"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=cwd, env={**os.environ, "HERMES_HOME": str(home), **environment},
        )  # fmt: skip
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._complain)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put(line.decode())
        self._arrived.put(None)

    def _complain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.decode())

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the server's stderr:\n{''.join(self.errors[-20:])}")
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for thread in self._threads:
            thread.join(5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class WsClient(Client):
    """Over a WebSocket."""

    def live(self) -> list[str]:
        """The sessions that this server keeps, looked at or parked."""
        return [one["id"] for one in self.call("session.active_list")["sessions"]]

    def gone(self, sid: str) -> None:
        """Wait until a session that nobody came back for is closed: the grace of those that left with it is over."""
        deadline = time.monotonic() + WITHIN
        while sid in self.live():
            assert time.monotonic() < deadline, f"{sid} is kept"
            time.sleep(0.1)

    def __init__(self, address: str, key: str, **options: Any) -> None:
        super().__init__()
        options.setdefault("additional_headers", {"authorization": f"Bearer {key}"})
        self._address, self._options = address, options
        self._stack = contextlib.ExitStack()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        for text in self.socket:
            assert isinstance(text, str)
            self._arrived.put(text)
        self._arrived.put(None)

    def send(self, text: str) -> None:
        self.socket.send(text)

    def __enter__(self) -> Self:
        connecting = connect(f"ws://{self._address}/api/ws", max_size=None, **self._options)
        self.socket: ClientConnection = self._stack.enter_context(connecting)
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._listener.join(5)
