"""`make conformance`, as far as it needs no registry: its clients of Python that are here anyway, and what it says."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
from bench import _gateway_homes as homes
from tools.conformance import api, durable, install, tokens


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


def test_the_durable_turn_of_hermes_has_a_tool_step(tmp_path: Path) -> None:
    durable.requests_of_hermes(tmp_path)
    assert '"role":"tool"' in (tmp_path / "2.json").read_text().replace(": ", ":")
    with homes.child("tools.conformance.model") as model, durable.hermes(tmp_path / "one", model) as engine:
        assert len(asyncio.run(durable.turns(engine.address, [engine.request("here")] * 2))) == 2
