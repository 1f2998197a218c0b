"""What `hello` costs: the first request of a fresh home, counted by somebody else's tokenizer.

Counted are the texts as they are sent: the system prompt, the tools as JSON, the message. Providers put a few tokens
around each, and lay out tools in a form of their own that they do not publish.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import _gateway_homes as homes
from bench._gateway_floors import post
from tools.conformance import install
from tools.conformance.api import CLIENT_KEY

from hermes_testing.scripted.model import ScriptedModel, say

PARTS = ("system prompt", "tools", "message")
_MOST = 3_500


def run() -> tuple[str, bool]:
    """The table, and whether all went well."""
    well, rows = (
        True,
        [f"| where `hello` is said | tools offered | {' | '.join(PARTS)} | together |", f"|---|{'---|' * 5}"],
    )
    with tempfile.TemporaryDirectory(prefix="tokens-", dir=install.FOLDER) as made:
        for title, ask in PLACES.items():
            body = _first_request(Path(made) / title.replace(" ", "-"), ask)
            try:
                counts = _counted(_parts(body))
            except install.NotInstalled as error:
                return f"Not counted: {error}.", False
            cells = " | ".join(f"{counts[part]:,}" for part in PARTS)
            well &= sum(counts.values()) <= _MOST
            rows.append(f"| {title} | {len(body.get('tools', ()))} | {cells} | **{sum(counts.values()):,}** |")
    return "\n".join([*rows, "", f"Counted with `gpt-tokenizer` (o200k_base); the aim is at most {_MOST:,}."]), well


def _first_request(home: Path, ask: Callable[[homes.Gateway], None]) -> Any:
    with ScriptedModel(say("Hello there.")).served() as model:
        gateway = homes.Gateway(home, model.origin, **(_EVERYTHING if ask is _with_five_servers else {}))
        with (home / ".env").open("a", encoding="utf-8") as file:
            file.write(f"API_SERVER_KEY={CLIENT_KEY}\n")
        ask(gateway)
        return model.model.requests[0].json


def _in_terminal(gateway: homes.Gateway) -> None:
    command = [sys.executable, "-m", "hermes_cli", "-q", "hello"]
    work = gateway.home.parent / "work"
    work.mkdir()
    subprocess.run(
        command, cwd=work, env={**os.environ, "HERMES_HOME": str(gateway.home)}, stdin=subprocess.DEVNULL,
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip


def _over_http(
    key: str, *, until: Callable[[homes.Gateway], bool] = lambda gateway: True
) -> Callable[[homes.Gateway], None]:
    """Ask over HTTP, once the gateway is as wanted."""

    def ask(gateway: homes.Gateway) -> None:
        body = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        gateway.start()
        try:
            deadline = time.monotonic() + 60
            while not until(gateway):
                if time.monotonic() > deadline:
                    raise SystemExit("conformance: the MCP servers are not connected within 60 s")
                time.sleep(0.1)
            asyncio.run(_asked(gateway.address, post("/v1/chat/completions", body, headers)))
        finally:
            gateway.stop()

    return ask


async def _asked(address: str, request: bytes) -> None:
    wire = homes.wire_to(address)
    await homes.asked(wire, request)
    wire.close()


def _are_connected(gateway: homes.Gateway) -> bool:
    """Whether the five MCP servers are connected, by what the gateway tells other processes."""
    states = [json.loads(file.read_text()) for file in (gateway.home / "mcp" / "state").glob("*.json")]
    return [one["state"] for said in states for one in said["servers"].values()] == ["connected"] * 5


_SERVER = Path(__file__).parents[2] / "tests" / "support" / "mcp_small_server.py"
_EVERYTHING = {
    "web": {"searxng_url": "http://127.0.0.1:9"},
    "mcp_servers": {
        f"server{number}": {
            "command": os.path.realpath(sys.executable), "args": ["-S", str(_SERVER)],
            "needs": [f"read:{_SERVER.parent}"],
        }
        for number in range(5)
    },
}  # fmt: skip
_with_five_servers = _over_http(homes.KEY, until=_are_connected)
PLACES = {
    "in a terminal": _in_terminal,
    "over the API, owner key": _over_http(homes.KEY),
    "over the API, client key": _over_http(CLIENT_KEY),
    "over the API, owner key, web search on, five MCP servers connected": _with_five_servers,
}


def _parts(body: Any) -> dict[str, str]:
    roles: dict[str, list[str]] = {}
    for message in body["messages"]:
        roles.setdefault(message["role"], []).append(message["content"])
    tools = json.dumps(body.get("tools", []), ensure_ascii=False, separators=(",", ":"))
    return dict(zip(PARTS, ("\n".join(roles["system"]), tools, "\n".join(roles["user"])), strict=True))


def _counted(texts: dict[str, str]) -> dict[str, int]:
    script = install.HERE / "clients" / "count_tokens.mjs"
    where = install.node()
    (where / script.name).write_bytes(script.read_bytes())
    done = subprocess.run(
        ["node", str(where / script.name)], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found
