"""`send_file`: out of the workspace, to this chat, once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import context
from hermes_agent.tools import registry
from hermes_config.config import of as config_of
from hermes_state.ids import SessionId


@pytest.fixture
def workspace(bench: Any) -> Path:
    folder: Path = bench.ctx.home / "workspace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def in_a_chat() -> Iterator[None]:
    identity = context.TurnIdentity(platform="telegram", chat_id="-100", thread_id="9", user_id="42")
    with context.bind(identity, context.CurrentSession(SessionId("s"))):
        yield


@pytest.mark.usefixtures("in_a_chat")
def test_a_file_is_owed_to_the_chat_as_it_was(bench: Any, workspace: Path) -> None:
    (workspace / "report.csv").write_bytes(b"a,b\n")
    result = bench.call("send_file", path="report.csv", caption=" The figures ")
    assert not result.is_error
    (item,) = bench.ctx.db.outbox.list()
    assert (item.platform, item.chat_id, item.payload["thread_id"]) == ("telegram", "-100", "9")
    (file,) = item.payload["files"]
    assert (file["name"], file["caption"]) == ("report.csv", "The figures")
    kept = Path(file["path"])
    assert kept == bench.ctx.home / "media" / f"{hashlib.sha256(b'a,b' + bytes([10])).hexdigest()}.csv"
    assert kept.stat().st_mode & 0o777 == 0o600
    (workspace / "report.csv").write_bytes(b"changed")
    assert kept.read_bytes() == b"a,b\n"
    assert [path.name for path in kept.parent.iterdir()] == [kept.name], "no draft is left behind"


@pytest.mark.usefixtures("in_a_chat")
def test_the_same_call_again_owes_nothing_more(bench: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a")
    for _ in range(2):
        assert not bench.call("send_file", path="a.txt").is_error
    assert len(bench.ctx.db.outbox.list()) == 1


@pytest.mark.usefixtures("in_a_chat")
def test_files_of_one_call_are_one_item_or_none(bench: Any, workspace: Path) -> None:
    for name in "abc":
        (workspace / f"{name}.txt").write_text(name)
    assert bench.call("send_file", path="a.txt", more=["missing.txt"]).is_error
    assert bench.call("send_file", path="a.txt", more=["b.txt"] * 10).is_error
    assert bench.ctx.db.outbox.list() == ()
    result = bench.call("send_file", path="a.txt", more=["b.txt", "c.txt"], caption="All three")
    assert result.content == "a.txt, b.txt, c.txt (3 bytes) are on their way to the chat."
    (item,) = bench.ctx.db.outbox.list()
    told = [(file["name"], file["caption"]) for file in item.payload["files"]]
    assert told == [("a.txt", "All three"), ("b.txt", ""), ("c.txt", "")]


@pytest.mark.usefixtures("in_a_chat")
@pytest.mark.parametrize(
    "path", ["../secret.txt", "link.txt", "folder/inside.txt", "/etc/passwd", "..", ".", "missing"]
)
def test_nothing_outside_the_workspace_leaves(bench: Any, workspace: Path, path: str) -> None:
    secret = bench.ctx.home / "secret.txt"
    secret.write_text("secret")
    (workspace / "link.txt").symlink_to(secret)
    outside = bench.ctx.home / "elsewhere"
    outside.mkdir()
    (outside / "inside.txt").write_text("secret")
    (workspace / "folder").symlink_to(outside)
    result = bench.call("send_file", path=path)
    assert result.is_error
    assert bench.ctx.db.outbox.list() == ()
    assert bench.gate.asked == [], "nobody is asked about what will not be sent"


@pytest.mark.usefixtures("in_a_chat")
def test_a_pipe_an_empty_file_and_a_database_are_not_sent(bench: Any, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    (workspace / "empty.txt").touch()
    for path in ("pipe", "empty.txt"):
        assert bench.call("send_file", path=path).is_error
    assert bench.ctx.db.outbox.list() == ()


@pytest.mark.usefixtures("in_a_chat")
def test_what_may_hold_credentials_is_asked_about(bench: Any, workspace: Path) -> None:
    (workspace / ".env").write_text("KEY=1")
    bench.gate.refuses = ("read",)
    assert bench.call("send_file", path=".env").is_error
    assert bench.ctx.db.outbox.list() == ()


def test_without_a_chat_there_is_nowhere_to_send_it(bench: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a")
    assert "no chat" in bench.call("send_file", path="a.txt").content


def test_it_is_offered_in_chats_to_those_who_have_files() -> None:
    tools = registry.Registry()

    def has(platform: str, role: str, **config: Any) -> bool:
        return any(
            tool.name == "send_file" for tool in tools.offered(config_of(Path(), config), role=role, platform=platform)
        )

    assert has("telegram", "owner")
    assert has("telegram", "admin")
    assert not has("telegram", "member")
    assert not has("telegram", "guest")
    assert not has("cli", "owner")
    assert not has("api_server", "owner")
    assert not has("telegram", "owner", agent={"disabled_toolsets": ["file"]})
