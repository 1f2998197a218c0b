"""A small MCP server of the older protocol (2025-11-25), written from its specification, without the SDK.

It starts in a tenth of a second. Each start offers other tools, counted in its own folder. `exit` ends it, `hang` stops
it for good, `junk` writes what is no message, `ask` asks the person, `list_changed` announces a new list.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys

COUNT = pathlib.Path("starts")
starts = int(COUNT.read_text()) + 1 if COUNT.exists() else 1
COUNT.write_text(str(starts))
extra: list[str] = []


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": said}]}


def ask() -> str:
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    send(id="q1", method="elicitation/create", params={"message": "Really?", "requestedSchema": schema})
    return json.dumps(json.loads(sys.stdin.readline())["result"])


def call(name: str) -> dict[str, object]:
    if name == "exit":
        sys.stderr.write("asked to exit\n")
        os._exit(7)
    if name == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    if name == "junk":
        sys.stdout.write("this is no message\n{\n")
    if name == "list_changed":
        extra.append("announced")
        send(method="notifications/tools/list_changed")
    return text(ask() if name == "ask" else f"{name} in start {starts}")


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None or method is None:
        continue
    if method == "initialize":
        info = {"name": "small", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(id=number, result={"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        names = ["exit", "hang", "junk", "ask", "list_changed", f"only_in_{starts}", *extra]
        tools = [{"name": one, "description": f"Do {one}.", "inputSchema": {"type": "object"}} for one in names]
        send(id=number, result={"tools": tools})
    elif method == "tools/call":
        send(id=number, result=call(message["params"]["name"]))
    else:
        send(id=number, error={"code": -32601, "message": "Method not found"})
