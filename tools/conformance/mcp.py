"""The MCP server by the protocol's own conformance suite: npm `@modelcontextprotocol/conformance`.

The suite knows no keys, so a small proxy adds the client key to each request; Host, Origin and everything else pass
byte for byte. It runs twice: against the product as it is, with the scenarios that need no test tools, and against the
product with the suite's test tools beside its own (`mcp_fixture`), with everything that a revision requires.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from bench import _gateway_homes as homes
from tools.conformance import install

from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, fail, say

KEY = "conformance-key-of-a-client-0123456789"
REVISIONS = ("2026-07-28", "2025-11-25")
PRODUCT = {
    "2026-07-28": (
        "server-stateless", "tools-list", "dns-rebinding-protection", "caching", "sep-2164-resource-not-found",
        "input-required-result-unsupported-methods", "http-header-validation",
    ),
    "2025-11-25": ("server-initialize", "ping", "tools-list", "dns-rebinding-protection", "server-session-lifecycle"),
}  # fmt: skip
"""The scenarios that need no test tools of the suite."""
_HEADERS = "sep-2243-server-"
NAMED: dict[str, tuple[str, tuple[str, ...]]] = {
    "tasks-lifecycle": (
        "one wants a task that ends as `failed`; a turn that fails is `completed` with `isError`. The others pass",
        ("sep-2663-tasks-get-status-failed",),
    ),
    "tasks-mrtr-input": (
        "it answers a form of its own; our only question is a permission, which a key of the API cannot give",
        (
            "sep-2663-tasks-get-status-input-required", "tasks-mrtr-tasks-update-resumes",
            "tasks-mrtr-partial-fulfillment",
        ),
    ),
    "tasks-mrtr-composition": (
        "it needs a tool that asks before it becomes a task; `ask` does not",
        ("sep-2663-mrtr-synchronous-before-task-creation",),
    ),
    "json-schema-2020-12": (
        "it needs a tool with a hand-written schema; the SDK makes ours from types",
        ("json-schema-2020-12-tool-found",),
    ),
    "http-custom-header-server-validation": (
        "it needs a tool with `x-mcp-header`; ours have none",
        (
            f"{_HEADERS}no-xmcp-tool", f"{_HEADERS}decode-base64", f"{_HEADERS}validate-param-match",
            f"{_HEADERS}reject-invalid-param-chars", f"{_HEADERS}reject-param-mismatch",
        ),
    ),
    "server-sse-polling": (
        "it needs streams that can be resumed; a task is what survives a lost connection here",
        ("incoming-sse-event",),
    ),
}  # fmt: skip
"""Why a scenario that no revision requires does not pass, and which of its checks may fail. All others must pass."""
DIAGNOSTIC = (
    "two of its checks call a diagnostic tool, which only the fixture has; the others pass",
    ("sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"),
)
"""The same for server-stateless, against the product as it is."""
_RUN = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT")
_SECONDS = 600
Outcomes = dict[str, list[str]]
"""By scenario, the checks that failed."""


def run() -> tuple[str, bool]:
    """The table, and whether all went well."""
    try:
        node = install.node()
    except install.NotInstalled as error:
        return f"Not run: {error}.", False
    lines, notes, well = ["| | required, passed | others run, passed |", "|---|--:|--:|"], [], True
    for fixture in (False, True):
        for revision in REVISIONS:
            with tempfile.TemporaryDirectory(prefix="mcp-", dir=install.FOLDER) as folder:
                found = measured(Path(folder), node, revision, fixture=fixture)
            line, more, good = judged(node, revision, found, fixture=fixture)
            lines.append(line)
            notes += [one for one in more if one not in notes]
            well &= good
    return "\n".join([*lines, "", *notes]), well


def judged(node: Path, revision: str, found: Outcomes, *, fixture: bool) -> tuple[str, list[str], bool]:
    """A row of the table, what is to be said of the scenarios that did not pass, and whether that is all in order."""
    required = set(requirements(node, revision))
    wanted = required if fixture else required & set(PRODUCT[revision])
    passed = {name for name in found if not found[name]}
    others = found.keys() - required
    what = "the product with the suite's test tools" if fixture else "the product as it is"
    row = f"| {what}, {revision} | {len(wanted & passed)} of {len(wanted)} | {len(others & passed)} of {len(others)} |"
    notes, good = [], wanted <= found.keys()
    for name in sorted(found.keys() - passed):
        stateless = name == "server-stateless" and not fixture
        reason, allowed = DIAGNOSTIC if stateless else NAMED.get(name, ("", ()))
        worse = [one for one in found[name] if one.partition(":")[0] not in allowed]
        good &= not worse
        notes.append(f"- {name}: {'**' + '; '.join(worse)[:300] + '**' if worse else reason}.")
    return row, notes, good


def requirements(node: Path, revision: str) -> list[str]:
    file = node / "node_modules" / "@modelcontextprotocol" / "conformance" / "requirements" / f"{revision}.yaml"
    names: list[str] = yaml.safe_load(file.read_text(encoding="utf-8"))["server"]
    return names


def measured(folder: Path, node: Path, revision: str, *, fixture: bool) -> Outcomes:
    """What the suite says of a gateway that was started for it."""
    with served(folder, fixture=fixture) as address:
        chosen = [["--requirements", revision]] if fixture else [
            ["--scenario", name, "--spec-version", revision] for name in PRODUCT[revision]
        ]  # fmt: skip
        for arguments in chosen:
            _suite(node, address, [*arguments, "-o", str(folder / "results")])
    found: Outcomes = {}
    for file in sorted((folder / "results").rglob("checks.json")):
        name = _RUN.match(file.parent.name)
        checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        failed = [f"{one['id']}: {one.get('errorMessage') or ''}" for one in checks if one["status"] == "FAILURE"]
        found[name[1] if name else file.parent.name] = failed
    return found


def _suite(node: Path, address: str, arguments: list[str]) -> None:
    modules = node / "node_modules"
    path = f"{modules / 'node' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"  # the suite needs Node 22
    subprocess.run(
        ["node", str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"), "server", "--url",
         f"{address}/mcp", *arguments],
        env={**os.environ, "PATH": path}, capture_output=True, timeout=_SECONDS, check=False,
    )  # fmt: skip


@contextmanager
def served(folder: Path, *, fixture: bool) -> Iterator[str]:
    """A gateway with the MCP server, reached without a key; its address."""
    with ScriptedModel(improvise=_next_step, allow_rejections=True, keep=4).served() as model, keyed() as proxy:
        gateway = homes.Gateway(folder / "home", model.origin, f"API_SERVER_KEY={KEY}\n")
        config = yaml.safe_load((gateway.home / "config.yaml").read_text(encoding="utf-8"))
        config["api_server"] |= {"mcp": True, "cors_origins": [proxy.address]}
        (gateway.home / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        if fixture:
            root = install.HERE.parents[1]
            code = f"import sys; sys.path.insert(0, {str(root)!r}); from tools.conformance import mcp_fixture as here"
            gateway.command = ("-c", f"{code}; here.run()")
        gateway.start()
        proxy.port_behind = gateway.port
        try:
            yield proxy.address
        finally:
            gateway.stop()


def _next_step(request: ScriptedRequest) -> Step:
    words = request.last_user_text.split()
    if words[0] == "wait":
        return say("computed", delay=float(words[1]))
    return fail(400, "this model does not want to") if words == ["fail"] else say("Hello ", "there.")


_ENDS = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
"""How a connection of the proxy ends; the last with the proxy itself."""


class KeyProxy:
    """Adds the key to the head of each request, one request a connection; all other bytes pass as they are."""

    def __init__(self) -> None:
        self.port_behind = 0
        self.address = ""
        self.ready = threading.Event()

    async def serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.address = f"http://localhost:{server.sockets[0].getsockname()[1]}"
        self.ready.set()
        async with server:
            await self._ended.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.ExitStack() as closing, contextlib.suppress(*_ENDS):
            closing.callback(writer.close)
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            kept = [line for line in head[1:-2] if not line.lower().startswith(b"connection:")]
            there, back = await asyncio.open_connection("127.0.0.1", self.port_behind)
            closing.callback(back.close)
            own = [b"authorization: Bearer " + KEY.encode(), b"connection: close"]
            back.write(b"\r\n".join([head[0], *kept, *own, b"", b""]))
            sending = asyncio.ensure_future(_pipe(reader, back))
            closing.callback(sending.cancel)
            await _pipe(there, writer)


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(65_536):
            target.write(piece)
            await target.drain()


@contextmanager
def keyed() -> Iterator[KeyProxy]:
    proxy = KeyProxy()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve()), daemon=True, name="key proxy")
    thread.start()
    proxy.ready.wait(10)
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join(10)
