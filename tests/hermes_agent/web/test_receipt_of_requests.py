"""The requests of a turn in its receipt, and the web in doctor."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.support.web.internet import FakeInternet, FakePage

from hermes_agent.receipts import receipt
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, say

from ..conftest import MakeAgent


def test_why_names_the_hosts_what_they_answered_and_how_much_came(make_agent: MakeAgent, db: SessionDB) -> None:
    urls = ["http://a.example/", "http://b.example/", "http://127.0.0.1/"]
    with (
        FakeInternet() as internet,
        ScriptedModel(say(calls=[call("web_extract", {"urls": urls})]), say("Done.")) as model,
    ):
        internet.site("a.example", {"/": FakePage(status=302, headers={"Location": "/b"}), "/b": "<p>hello"})
        internet.site("b.example", {"/": FakePage("gone", status=410)})
        asyncio.run(make_agent(model).arun_conversation(f"Read {' '.join(urls)}"))
    made = receipt.receipt_of(db, receipt.find(db, "last"))
    assert sorted((one["url"], one["status"], one["bytes"]) for one in made["web_requests"]) == [
        ("http://a.example/", 302, 0), ("http://a.example/b", 200, 8), ("http://b.example/", 410, 0),
    ]  # fmt: skip
    (line,) = [line for line in receipt.short_text(made).splitlines() if line.startswith("Fetched")]
    assert (
        line.startswith("Fetched 8 bytes in 3 requests: ") and "a.example (302)" in line and "b.example (410)" in line
    )


def test_doctor_says_how_to_get_a_search_engine(home: Path) -> None:
    def doctor() -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "hermes_cli", "doctor"], capture_output=True, text=True, check=False, timeout=60
        )
        return next(line for line in ran.stdout.splitlines() if " web " in line)

    home.mkdir(mode=0o700, exist_ok=True)
    assert "no search engine, so no web_search. Set web.searxng_url" in doctor()
    (home / "config.yaml").write_text("web: {searxng_url: 'http://192.168.1.7:8888'}\n")
    assert "the web is searched with searxng" in doctor()
    (home / "config.yaml").write_text("web: {search_backend: brave}\n")
    assert "names brave, which is not configured" in doctor()
