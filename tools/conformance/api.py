"""The API, driven by clients of other people: a real gateway process, and the scripted model behind a real socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import _gateway_homes as homes
from tools.conformance import install
from tools.conformance.model import improvised

CLIENT_KEY = "conformance-key-of-a-client-0123456789"
_SECONDS = 180


class Client(NamedTuple):
    title: str
    script: str


CLIENTS = (
    Client("openai-python", "openai_python.py"),
    Client("openai-js", "openai_js.mjs"),
    Client("LangChain", "langchain_python.py"),
    Client("AI SDK", "ai_sdk.mjs"),
)
Found = dict[str, dict[str, str]]
"""By client and check: empty when it passed, else why not; `limit: …` when the client cannot pass it."""


def run() -> tuple[str, bool]:
    """The table, and whether all went well."""
    found: Found = {}
    absent: list[str] = []
    with tempfile.TemporaryDirectory(prefix="api-", dir=install.FOLDER) as folder, gateway(Path(folder)) as address:
        for client in CLIENTS:
            try:
                found[client.title] = driven(_command(client), address)
            except install.NotInstalled as error:
                absent.append(f"{client.title} was not run: {error}.")
    return table(found, absent), not absent and not _failures(found)


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """A gateway with a client key, and the model behind it; its address."""
    with improvised().served() as model:
        running = homes.Gateway(folder / "home", model.origin)
        (running.home / ".env").write_text(f"API_SERVER_KEY={CLIENT_KEY}\n", encoding="utf-8")
        running.start()
        try:
            yield running.address
        finally:
            running.stop()


def _command(client: Client) -> list[str]:
    script = install.HERE / "clients" / client.script
    if script.suffix == ".py":
        return [str(install.python()), str(script)]
    where = install.node()  # a module finds the packages beside itself
    for one in script.parent.glob("*.mjs"):
        (where / one.name).write_bytes(one.read_bytes())
    return ["node", str(where / script.name)]


def driven(command: list[str], address: str) -> dict[str, str]:
    """What a client found, by check."""
    environ = {**os.environ, "HERMES_BASE": f"{address}/v1", "HERMES_KEY": CLIENT_KEY}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"the whole script": f"it did not end within {_SECONDS} seconds"}
    if done.returncode:
        print(done.stderr[-2_000:], file=sys.stderr)
        return {"the whole script": f"it ended with {done.returncode}"}
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["check"]: f"limit: {one['limit']}" if one["limit"] else one["why"] for one in lines}


def table(found: Found, absent: list[str]) -> str:
    """One row for each check, one column for each client; below it what failed, with its reason."""
    checks = list(dict.fromkeys(check for checks in found.values() for check in checks))
    notes: list[str] = list(absent)
    rows = [f"| check | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for check in checks:
        cells = []
        for title, results in found.items():
            why = results.get(check)
            cells.append(_verdict(why))
            if why:
                notes.append(f"{title}, {check}: {why.removeprefix('limit: ').splitlines()[0]}.")
        rows.append(f"| {check} | {' | '.join(cells)} |")
    counts = " | ".join(f"{sum(not why for why in one.values())} of {len(one)}" for one in found.values())
    rows.append(f"| **passed** | {counts} |")
    return "\n".join([*rows, "", "— the client has no such call.", *(f"- {note}" for note in notes)])


def _verdict(why: str | None) -> str:
    if not why:
        return "—" if why is None else "pass"
    return "limit" if why.startswith("limit: ") else "FAIL"


def _failures(found: Found) -> bool:
    return any(why and not why.startswith("limit: ") for one in found.values() for why in one.values())
