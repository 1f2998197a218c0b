"""`make conformance`: what other people's programs say about this one.

Five parts (`api`, `durable`, `mcp`, `tokens`, `injections`); without a name all of them run. Programs are fetched by
name from PyPI and npm into `.conformance/`. The output is Markdown, as in docs/conformance.md. What cannot be fetched
is named in one line.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tools.conformance import api, durable, injections, install, mcp, tokens

PARTS: dict[str, tuple[str, Callable[[], tuple[str, bool]]]] = {
    "api": ("The API, driven by clients of other people", api.run),
    "durable": ("A durable turn beside engines of other people", durable.run),
    "mcp": ("The MCP server, by the protocol's own conformance suite", mcp.run),
    "tokens": ("What hello costs in tokens", tokens.run),
    "injections": ("Injections of AgentDojo against an agent that obeys them", injections.run),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"conformance: there is no {', '.join(unknown)}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    install.FOLDER.mkdir(exist_ok=True)
    print(f"{_machine()}\n", flush=True)
    well = True
    for name in names or PARTS:
        title, part = PARTS[name]
        text, good = part()
        well &= good
        print(f"## {title}\n\n{text}\n", flush=True)
    return 0 if well else 1


def _machine() -> str:
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    cpu = next((line.partition(": ")[2] for line in cpus.splitlines() if line.startswith("model name")), "unknown CPU")
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    node = install.node_version() if shutil.which("node") else "none"
    python = platform.python_version()
    return f"{when}; {os.cpu_count()} cores of {cpu}, {platform.system()}; Python {python}, Node {node}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
