"""`make conformance`, as far as it needs no registry: its clients of Python that are here anyway, and what it says."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import httpx2
import pytest
from bench import _gateway_homes as homes
from tools.conformance import api, durable, install, mcp, tokens


def test_openais_client_passes_every_check(tmp_path: Path) -> None:
    with api.gateway(tmp_path) as address:
        found = api.driven([sys.executable, str(install.HERE / "clients" / "openai_python.py")], address)
    assert len(found) == 19 and not any(found.values()), found


def test_a_check_that_fails_is_a_failure_in_the_table(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(install.HERE / 'clients')!r})\n"
        "from report import check, is_equal, run\n"
        "check('good')(lambda: is_equal(1, 1)); check('bad')(lambda: is_equal(1, 2)); run()\n"
    )
    found = api.driven([sys.executable, str(script)], "http://127.0.0.1:9")
    shown = api.table({"one": found, "other": {"good": "limit: it cannot"}}, ["third was not run: no node."])
    assert "| good | pass | limit |" in shown and "| bad | FAIL | — |" in shown
    assert "- third was not run: no node." in shown and "1 instead of 2" in shown
    script.write_text("raise SystemExit(3)")
    assert api.driven([sys.executable, str(script)], "http://127.0.0.1:9") == {"the whole script": "it ended with 3"}


def test_without_node_it_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(install, "FOLDER", tmp_path)
    assert tokens.run() == ("Not counted: there is no node and npm on this machine (Node 20 or newer).", False)
    assert mcp.run() == ("Not run: there is no node and npm on this machine (Node 20 or newer).", False)


def test_a_required_scenario_of_mcp_that_fails_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "node_modules" / "@modelcontextprotocol" / "conformance" / "requirements" / "2026-07-28.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("server: [tools-list, caching]\n", encoding="utf-8")
    passed: dict[str, list[str]] = {
        "tools-list": [],
        "caching": [],
        "tasks-lifecycle": ["sep-2663-tasks-get-status-failed: no"],
    }
    row, notes, good = mcp.judged(tmp_path, "2026-07-28", passed, fixture=True)
    assert good and row.endswith("| 2 of 2 | 0 of 1 |") and notes[0].startswith("- tasks-lifecycle: one wants")
    worse = ["sep-2663-tasks-get-status-failed: no", "another: no"]
    for found in (
        {**passed, "caching": ["two: no"]}, {"tools-list": []}, {**passed, "new-scenario": ["three: no"]},
        {**passed, "tasks-lifecycle": worse},
    ):  # fmt: skip
        assert not mcp.judged(tmp_path, "2026-07-28", found, fixture=True)[2], found


def test_mcps_fixture_is_reached_through_the_products_own_guard(tmp_path: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    headers = {"accept": "application/json, text/event-stream"}
    with mcp.served(tmp_path, fixture=True) as address, httpx2.Client(base_url=address, headers=headers) as client:
        assert client.post("/mcp", json=call, headers={"host": "evil.example"}).status_code == 421
        opened = client.post("/mcp", json={**call, "method": "initialize", "params": about})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        listed = client.post("/mcp", json=call, headers=session).text
        assert '"ask"' in listed and "test_simple_text" in listed


def test_the_durable_turn_of_hermes_has_a_tool_step(tmp_path: Path) -> None:
    durable.requests_of_hermes(tmp_path)
    assert '"role":"tool"' in (tmp_path / "2.json").read_text().replace(": ", ":")
    with homes.child("tools.conformance.model") as model, durable.hermes(tmp_path / "one", model) as engine:
        assert len(asyncio.run(durable.turns(engine.address, [engine.request("here")] * 2))) == 2
