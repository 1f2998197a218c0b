"""Slash commands: parsed as people type them, answered in every place, and never about somebody else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.conftest import MakeAgent

from hermes_agent import jobs
from hermes_agent.commands import registry
from hermes_agent.commands.base import Surface, Why
from hermes_agent.commands.registry import Invocation, parse
from hermes_agent.compression import summary
from hermes_config import config as configuration
from hermes_config.config import Config
from hermes_state.conversations.ledger import Handle
from hermes_state.ids import PersonId, SessionId, SessionKey
from hermes_state.people.people import Person
from hermes_state.session_db import SessionDB
from hermes_state.turns.inbox import Address
from hermes_state.turns.jobs import Step
from hermes_testing.clock import Clock
from hermes_testing.plugins import PluginHome, plugin_home
from hermes_testing.scripted.model import ScriptedModel, say


@dataclass
class Place:
    """A surface, as plain as can be: it remembers what it was asked for."""

    db: SessionDB
    person: Person
    session_id: SessionId | None = None
    surface: Surface = "cli"
    platform: str = "cli"
    private: bool = True
    shared: bool = False
    route: SessionKey | None = None
    address: Address | None = None
    scope: str = ""
    busy: bool = False
    model: str = "demo"
    said: list[str] = field(default_factory=list)
    done: list[tuple[str, Any]] = field(default_factory=list)
    typed: str = ""

    @property
    def config(self) -> Config:
        return configuration.load()

    async def reply(self, text: str, *, personal: bool = False) -> None:
        self.said.append(text)

    async def stop(self) -> bool:
        was, self.busy = self.busy, False
        return was

    async def show(self, handle: Handle, *, why: Why) -> None:
        self.session_id = handle.session_id
        self.done.append((why, handle.session_id))

    async def changed(self, reason: str) -> None:
        self.done.append(("changed", reason))

    async def run_turn(self, content: Any) -> None:
        self.done.append(("turn", content))

    async def prefill(self, text: str) -> bool:
        self.typed = text
        return True

    async def compress(self, focus: str | None) -> str:
        self.done.append(("compress", focus))
        return "compressed"

    async def use_model(self, name: str) -> str:
        self.model = name
        return f"Now {name}."

    def type(self, text: str) -> str:
        """Type a line and read the answer."""
        before = len(self.said)
        assert asyncio.run(registry.run(self, text)), f"{text} was taken for a message to the model"
        return "\n".join(self.said[before:])

    def talk(self, *lines: str) -> None:
        assert self.session_id is not None
        for line in lines:
            self.db.append_message(self.session_id, "user", line)
            self.db.append_message(self.session_id, "assistant", f"re {line}")

    def heard(self) -> list[Any]:
        assert self.session_id is not None
        return [row["content"] for row in self.db.get_messages(self.session_id) if row["role"] == "user"]


@pytest.fixture
def place(db: SessionDB) -> Place:
    return Place(db, db.people.owner(), db.ledger.open(source="cli").session_id)


def somebody(db: SessionDB, role: Any = "member") -> Person:
    return db.people.ensure(platform="telegram", native_id="7", display_name="Bea", role=role)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/new", Invocation("new", "")),
        ("  /Undo 3 ", Invocation("undo", "3")),
        ("/new@Some_Bot  a title", Invocation("new", "a title", "some_bot")),
        ("/title one\ntwo", Invocation("title", "one\ntwo")),
        ("/compress\nthe trip", Invocation("compress", "the trip")),
        ("/model —global x — y –5", Invocation("model", "--global x — y –5")),
        ("/nonsense", Invocation("nonsense", "")),
        ("/usr/bin/env is a program", None),
        ("/", None),
        ("/ hello", None),
        ("/@bot", None),
        ("hello /new", None),
        ("", None),
    ],
)
def test_what_is_a_command(text: str, expected: Invocation | None) -> None:
    assert parse(text) == expected


class TestTheTable:
    def test_help_is_the_table(self, place: Place) -> None:
        shown = place.type("/help")
        for name, row in registry.table("cli").items():
            assert f"/{name}" in shown and row.description in shown
        assert "/undo [N]" in shown

    def test_help_of_one(self, place: Place) -> None:
        assert "start a new conversation (also /reset)" in place.type("/help")
        assert place.type("/help /reset") == "/new [title] — start a new conversation\nAlso: /reset"
        assert "no command /nope" in place.type("/help nope")

    def test_an_unknown_command_is_answered_and_never_sent_to_the_model(self, place: Place) -> None:
        assert place.type("/comprss") == "There is no command /comprss. Did you mean /compress?"
        assert place.type("/Restart") == "There is no command /restart. hermes gateway restart does it."
        began = time.process_time()
        assert len(place.type("/" + "compress" * 1_000_000)) < 200 and time.process_time() - began < 1
        assert place.type("/xyzzy").endswith("/help lists them.")
        assert len(place.type("/" + "x" * 5_000)) < 200
        assert not asyncio.run(registry.run(place, "/usr/bin is a folder")) and place.done == []

    def test_help_shows_a_guest_what_a_guest_may(self, db: SessionDB) -> None:
        guest = Place(db, somebody(db, "guest"))
        assert "/model" not in guest.type("/help") and "not for guests" in guest.type("/model x")
        assert guest.model == "demo"

    def test_a_package_above_adds_its_own(self, place: Place) -> None:
        async def handler(ctx: registry.CommandContext, args: str) -> str:
            return f"home is {args}"

        row = registry.SlashCommand(
            name="set-home",
            description="d",
            category="Chat",
            handler=handler,
            surfaces=frozenset({"gateway"}),
        )
        registry.add(row)
        try:
            assert "no command" in place.type("/set-home x")
            place.surface = "gateway"
            assert place.type("/set_home here") == "home is here", "Telegram has no dashes in commands"
        finally:
            registry._OURS.pop("set-home")

    def test_what_others_must_not_read_is_not_said_in_a_room(self, place: Place) -> None:
        place.talk("my secret plan")
        place.private = False
        for line in ("/sessions", "/resume", "/memory", "/whoami"):
            assert "private" in place.type(line) and "secret" not in place.said[-1]

    def test_what_a_running_turn_works_on_is_left_alone(self, place: Place) -> None:
        place.talk("one")
        place.busy = True
        for line in ("/undo", "/redo", "/retry", "/compress", "/uncompress", "/branch", "/resume 1"):
            assert place.type(line).startswith("A turn is running.")
        assert place.heard() == ["one"] and place.done == []
        assert "running" in place.type("/status")
        assert place.type("/stop").startswith("Stopped") and place.type("/stop") == "Nothing is running."


class TestTurns:
    def test_undo_and_redo(self, place: Place) -> None:
        place.talk("one", "two", "three")
        assert "1 turn: “three”" in place.type("/undo") and place.typed == "three"
        assert "2 turns: “one”" in place.type("/undo 2")
        assert place.heard() == [] and place.type("/undo") == "Nothing was said here yet."
        assert place.type("/redo") == "Brought back 2 turns." and place.heard() == ["one", "two"]
        place.talk("other")
        assert "nothing to bring back" in place.type("/redo")
        assert [what for what in place.done if what[0] == "changed"] == [
            ("changed", "undo"),
            ("changed", "undo"),
            ("changed", "redo"),
        ]

    @pytest.mark.parametrize("count", ["0", "-1", "x", "1 2", "٣", "9" * 30])
    def test_undo_of_nonsense_changes_nothing(self, place: Place, count: str) -> None:
        place.talk("one")
        assert "How many turns?" in place.type(f"/undo {count}") and place.heard() == ["one"]

    def test_undo_stops_at_what_was_compressed(self, place: Place) -> None:
        assert place.session_id is not None
        place.talk("old")
        kept = summary.message("They talked about old things.", "user")
        place.session_id = place.db.ledger.rotate(place.session_id, [kept]).session_id
        place.talk("new")
        assert "1 turn: “new”" in place.type("/undo 5")
        assert "/uncompress" in place.type("/undo") and len(place.heard()) == 1
        assert place.type("/redo") == "Brought back 1 turn."
        assert place.type("/uncompress") == "As it was before the compression, with 2 messages said since."
        place.session_id = SessionId(place.db.get_compression_tip(place.session_id))
        assert place.done[-1] == ("changed", "uncompress") and place.heard() == ["old", "new"]
        assert place.type("/uncompress") == "This conversation is not compressed."

    def test_a_turn_of_another_process_is_not_undone(self, place: Place) -> None:
        assert place.session_id is not None
        place.talk("one")
        root = place.db.get_conversation_root(place.session_id)
        assert place.db.leases.acquire(root, holder="another process", ttl=60)
        assert "A turn is running in this conversation" in place.type("/undo") and place.heard() == ["one"]

    def test_retry_asks_again(self, place: Place) -> None:
        place.talk("one", "two")
        assert place.type("/retry") == "" and place.done[-1] == ("turn", "two") and place.heard() == ["one"]

    def test_compress_passes_on_what_matters(self, place: Place) -> None:
        assert place.type("/compact the trip") == "compressed"
        place.type("/compress")
        assert place.done == [("compress", "the trip"), ("compress", None)]


class TestConversations:
    def test_new_keeps_the_old(self, place: Place, home: Path) -> None:
        old = place.session_id
        place.talk("one")
        told = f"A new conversation: Plans for June. The old one is kept: /resume {old}"
        assert place.type("/new Plans for June") == told
        assert place.session_id != old and place.done == [("new", place.session_id)]
        assert place.type("/title") == "Title: Plans for June"
        assert place.type("/new") == "This conversation is new already."
        assert old is not None
        row = place.db.get_session(old)
        assert row is not None and row["end_reason"] == "session_reset"

    def test_new_stops_what_runs(self, place: Place) -> None:
        place.talk("one")
        place.busy = True
        place.type("/new")
        assert not place.busy and place.done[0][0] == "new"

    def test_new_with_a_bad_title_changes_nothing(self, place: Place) -> None:
        place.talk("one")
        before = place.session_id
        assert "100" in place.type(f"/new {'x' * 200}") and place.session_id == before

    def test_the_route_moves_along(self, db: SessionDB) -> None:
        key = SessionKey("agent:main:telegram:dm:7")
        bea = somebody(db)
        first = db.ledger.open(source="telegram", route=key, owner=bea.id).session_id
        place = Place(db, bea, first, surface="tui", platform="telegram", route=key)

        def leads_to() -> SessionId | None:
            found = db.engine.write(db.ledger.resolving(key))
            return None if found is None else found.handle.session_id

        place.talk("one")
        place.type("/new")
        assert leads_to() == place.session_id != first
        place.type(f"/resume {first}")
        assert leads_to() == place.session_id == first
        place.type("/branch Other way")
        assert leads_to() == place.session_id != first and place.heard() == ["one"]
        assert place.type("/title") == "Title: Other way"
        assert len(place.type("/sessions").splitlines()) == 4, "both of hers, and the hint"

    @pytest.mark.parametrize("surface", ["cli", "tui", "gateway"])
    def test_nobody_sees_or_takes_over_anothers(self, place: Place, db: SessionDB, surface: Surface) -> None:
        assert place.session_id is not None
        place.talk("my secret plan")
        place.type("/title Diary")
        bea = Place(db, somebody(db, "admin"), surface=surface, platform="telegram")
        assert bea.type("/sessions") == "You have no conversations yet."
        for wanted in ("Diary", place.session_id, place.session_id[:12], "1", "secret", "my secret", "%"):
            answer = bea.type(f"/resume {wanted}")
            assert answer.startswith("You have no conversation “"), answer
        assert bea.session_id is None and bea.done == []
        bea.session_id = db.ledger.open(source="telegram", owner=bea.person.id).session_id
        bea.talk("hello")
        assert bea.type("/title Diary") == "Title: Diary", "not even that somebody has this title is told"

    @pytest.mark.parametrize("surface", ["cli", "gateway", "api"])
    def test_outside_the_window_the_owner_finds_nothing_of_others(self, db: SessionDB, surface: Surface) -> None:
        bea = Place(db, somebody(db), db.ledger.open(source="telegram", owner=somebody(db).id).session_id)
        bea.talk("her secret plan")
        owner = Place(db, db.people.owner(), surface=surface)
        assert owner.type("/resume her secret").startswith("You have no conversation “")
        bea.type("/title Diary")
        assert owner.type("/resume Diary").startswith("You have no conversation “") and owner.done == []

    def test_a_rooms_conversation_is_nobodys_own(self, db: SessionDB) -> None:
        room = Place(db, somebody(db), platform="telegram", private=False)
        room.session_id = db.ledger.open(source="telegram", fields={"chat_type": "group"}).session_id
        room.talk("hello all")
        room.type("/new")
        room.private = True
        assert room.type("/sessions") == "You have no conversations yet."

    def test_resume_by_number_title_prefix_and_earlier_segment(self, place: Place, clock: Clock) -> None:
        first = place.session_id
        assert first is not None
        place.talk("one")
        place.type("/title Trip to Kyoto")
        child = place.db.ledger.rotate(first, [{"role": "user", "content": "s"}]).session_id
        place.session_id = child
        clock.advance(7_300)
        place.type("/new Second")
        place.talk("two")
        assert " 2. Trip to Kyoto · cli · 2 h · " in place.type("/sessions")
        second = place.session_id
        for wanted in ("2", "trip to kyoto", "Kyoto", first, child, child[:-2]):
            assert place.type(f"/resume {wanted}").startswith("Resumed: Trip to Kyoto"), wanted
            assert place.session_id == child
            place.type(f"/resume {second}")
        assert place.type("/resume Second") == "This is it: Second."
        assert "▸" in next(line for line in place.type("/resume").splitlines() if "Second" in line)

    def test_what_fits_several_is_asked_back(self, place: Place) -> None:
        for title in ("Trip one", "Trip two"):
            place.type(f"/new {title}")
            place.talk("x")
        here = place.session_id
        place.type("/new Something else")
        place.talk("x")
        for answer in (place.type("/resume trip"), place.type("/sessions trip")):
            assert "Trip two" in answer and "Something else" not in answer
            number = next(line.partition(".")[0].strip() for line in answer.splitlines() if "Trip one" in line)
            assert place.type(f"/resume {number}").startswith("Resumed: Trip one")
            place.type("/resume Something else")
        assert "2 conversations" in place.type("/resume trip")
        assert place.session_id != here

    def test_a_branch_is_a_copy(self, place: Place) -> None:
        assert place.type("/branch") == "Nothing was said here yet."
        place.talk("one")
        place.type("/title Plan")
        old = place.session_id
        place.type("/fork")
        place.talk("two")
        assert place.heard() == ["one", "two"] and place.type("/title") == "Title: Plan #2"
        place.type(f"/resume {old}")
        assert place.heard() == ["one"]
        assert "already" in place.type("/branch Plan #2") and place.session_id == old

    def test_hooks_hear_of_it_old_before_new(self, place: Place, plugged: PluginHome) -> None:
        plugged.add(
            "watch",
            """
            heard = []
            def register(ctx):
                for name in ("on_session_finalize", "on_session_reset"):
                    ctx.register_hook(name, lambda _name=name, **facts: heard.append((_name, facts)))
                ctx.register_command("heard", lambda args: repr([(n, sorted(f)) for n, f in heard]))
                ctx.register_command("ids", lambda args: " ".join(f["session_id"] for n, f in heard))
            """,
        )
        plugged.load("watch")
        old = place.session_id
        place.talk("one")
        place.type("/new")
        facts = ["platform", "session_id", "telemetry_schema_version"]
        assert place.type("/heard") == repr([("on_session_finalize", facts), ("on_session_reset", facts)])
        assert place.type("/ids") == f"{old} {place.session_id}"


class TestTelling:
    def test_status_usage_and_whoami(self, place: Place) -> None:
        assert place.session_id is not None
        assert place.type("/usage") == "No model was asked in this conversation yet."
        place.talk("one")
        db = place.db
        db.update_token_counts(place.session_id, 1_200, 30, model="demo", estimated_cost_usd=0.5, api_call_count=2)
        place.session_id = db.ledger.rotate(place.session_id, [{"role": "user", "content": "s"}]).session_id
        db.update_token_counts(
            place.session_id, 800, 20, cache_read_tokens=5, estimated_cost_usd=0.25, api_call_count=1
        )
        used = place.type("/usage")
        assert "2,000 tokens, 5 of them" in used and "$0.7500" in used and "calls   3" in used
        status = place.type("/status")
        assert place.session_id in status and "1 time" in status and "0 breaks" in status and "demo" in status
        assert "owner" in place.type("/whoami") and "local owner" in place.said[-1]

    def test_usage_says_what_is_left_to_those_it_concerns(self, place: Place) -> None:
        assert place.session_id is not None
        place.talk("one")
        place.db.update_token_counts(place.session_id, 10, 10, api_call_count=1)
        for key, value in (("conversation.usd", 2), ("person_day.tokens", 5_000), ("day.usd", 10)):
            configuration.set_value(f"budget.{key}", value)
        used = place.type("/usage")
        assert "this conversation  $0.00 of $2.00" in used and "0 tokens of 5,000 tokens" in used
        assert "everybody's day" in used
        place.person, place.private = somebody(place.db), False
        used = place.type("/usage")
        assert "this conversation" in used and "your day" not in used and "everybody" not in used

    def test_what_another_process_compressed_is_found_at_its_newest_part(self, place: Place) -> None:
        assert place.session_id is not None
        place.talk("one")
        child = place.db.ledger.rotate(place.session_id, [{"role": "user", "content": "s"}]).session_id
        place.db.append_message(child, "user", "two")
        assert place.type("/title Moved on") == "Title: Moved on"
        assert place.db.get_session_title(child) == "Moved on"
        assert "“two”" in place.type("/undo") and child in place.type("/status")

    def test_before_anything_was_said(self, db: SessionDB) -> None:
        place = Place(db, db.people.owner())
        for line in ("/title", "/title x", "/usage", "/undo", "/redo", "/retry", "/compress", "/uncompress", "/branch"):
            assert place.type(line) == "Nothing was said here yet.", line
        assert "demo" in place.type("/status")
        assert place.type("/new") == "A new conversation." and place.session_id is not None

    def test_the_model_is_changed_here_and_nowhere_else(self, place: Place) -> None:
        assert "demo" in place.type("/model") and place.type("/model big") == "Now big." and place.model == "big"
        assert "hermes config set" in place.type("/model —global huge") and place.model == "big"

    def test_tools_memory_and_skills(self, place: Place, home: Path) -> None:
        assert "read_file" in place.type("/tools")
        guest = Place(place.db, somebody(place.db, "guest"))
        assert "terminal" not in guest.type("/tools")
        assert "Nothing is remembered" in place.type("/memory")
        folder = home / "memories"
        folder.mkdir(parents=True)
        (folder / "MEMORY.md").write_text("Ada is allergic to nuts\n§\nlikes tea")
        assert "· Ada is allergic to nuts\n· likes tea" in place.type("/memory")
        assert "Nothing is remembered" in guest.type("/memory")
        (folder / "MEMORY.md").write_text("likes tea\n§\n[from mail, not confirmed] opens at nine")
        assert place.type("/memory confirm nine") == "Confirmed: opens at nine"
        assert place.type("/memory forget tea") == "Forgotten: likes tea"
        assert (folder / "MEMORY.md").read_text() == "opens at nine"
        assert "no entry contains" in place.type("/memory confirm coffee")
        assert "There are no skills" in place.type("/skills")
        (home / "skills" / "bread").mkdir(parents=True)
        (home / "skills" / "bread" / "SKILL.md").write_text("---\nname: bread\ndescription: Bake.\n---\n")
        assert place.type("/brad").endswith("Did you mean /bread?")


@pytest.fixture
def plugged(home: Path) -> Iterator[PluginHome]:
    with plugin_home(home) as made:
        yield made


class TestPlugins:
    CODE = """
    import asyncio
    async def later(args):
        await asyncio.sleep(0)
        return f"later {args}"
    async def with_context(ctx, args):
        await ctx.reply("first")
        return f"{ctx.person.role} {args}"
    async def forever(args):
        await asyncio.sleep(60)
    def fails(args):
        raise RuntimeError("sk-canary")
    def register(ctx):
        ctx.register_command("greet", lambda args: f"hello {args}", "say hello", "[name]")
        ctx.register_command("later", later)
        ctx.register_command("who", with_context, wants_context=True)
        ctx.register_command("quiet", lambda args: None)
        ctx.register_command("forever", forever)
        ctx.register_command("fails", fails)
        ctx.register_command("new", lambda args: "mine")
        ctx.register_command("reset", lambda args: "mine")
    """

    def test_their_commands_join_and_never_replace_ours(self, place: Place, plugged: PluginHome) -> None:
        plugged.add("extra", self.CODE)
        plugged.load("extra")
        shown = place.type("/help")
        assert "Plug-ins" in shown and "/greet [name]" in shown and "say hello" in shown
        assert place.type("/greet Ada") == "hello Ada"
        assert place.type("/later x") == "later x"
        assert place.type("/who am I") == "first\nowner am I"
        assert place.type("/quiet") == ""
        assert "From the plug-in extra" in place.type("/help greet")
        assert place.type("/new") != "mine" and place.type("/reset") != "mine"

    def test_one_that_fails_or_hangs_is_one_line(
        self, place: Place, plugged: PluginHome, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plugged.add("extra", self.CODE)
        plugged.load("extra")
        assert place.type("/fails") == "/fails: the plug-in extra failed (RuntimeError)."
        configuration.set_value("limits.plugin_command_ms", 100)
        patient = place.db.limits
        place.db.limits = configuration.load().limits
        assert place.type("/forever") == "/forever: the plug-in extra took longer than 0.1 s."
        place.db.limits = patient


def test_every_row_is_complete() -> None:
    for name, row in registry.table("cli").items():
        assert name == row.name and row.description and row.description[0].islower() and row.category
    aliases = [alias for row in registry.table("cli").values() for alias in row.aliases]
    assert len(set(aliases)) == len(aliases) and not set(aliases) & set(registry.table("cli"))


def test_a_person_id_is_what_scopes(db: SessionDB) -> None:
    """A display name decides nothing: two people of one name have their own lists."""
    one = Place(db, db.people.ensure(platform="telegram", native_id="1", display_name="Ana"))
    two = Place(db, db.people.ensure(platform="telegram", native_id="2", display_name="Ana"))
    one.session_id = db.ledger.open(source="telegram", owner=PersonId(one.person.id)).session_id
    one.talk("hello")
    assert "hello" in one.type("/sessions") and "no conversations" in two.type("/sessions")


def test_jobs_at_a_terminal_name_a_chat_and_the_gateway_that_is_missing(place: Place) -> None:
    added = place.type("/cron add every day at 8 The news.")
    assert "next " in added and "No gateway is running, so no job runs" in added
    assert "a reminder needs a chat. Name one: --to PLATFORM:CHAT" in place.type("/remind in 1h tea")
    said = place.type("/remind --to telegram:42 me in two hours to make tea")
    assert "I will remind you in telegram:42: " in said and "Nobody has written to Hermes in telegram:42" in said
    place.db.ledger.open(source="telegram", route="agent:main:telegram:dm:42")  # as in an imported home
    assert "Nobody" not in place.type("/remind --to telegram:42 me in two hours to make tea")
    for number in range(15):
        place.type(f"/cron add every day at 8 Job {number}.")
    assert place.type("/cron").endswith("/cron list 2 shows more.")
    second = place.type("/cron list 2").splitlines()
    assert len(second) == 3 and not {*second} & {*place.type("/cron").splitlines()}
    assert place.type("/cron list 3") == "There are no more jobs."


def test_undo_is_no_break_of_the_prefix(db: SessionDB, make_agent: MakeAgent) -> None:
    """After /undo and /redo the model is asked with what is left, and nothing counts as a broken prefix."""

    def told(body: bytes) -> list[str]:
        return [row["content"] for row in json.loads(body)["messages"] if row["role"] != "system"]

    with ScriptedModel(say("A"), say("B"), say("C"), say("D")) as model:
        agent = make_agent(model)

        async def turns() -> None:
            place = Place(db, db.people.owner())
            await agent.arun_conversation("one")
            await agent.arun_conversation("two")
            place.session_id = SessionId(agent.session_id)
            await registry.run(place, "/undo")
            await agent.arun_conversation("three")
            await registry.run(place, "/undo 2")
            await registry.run(place, "/redo")
            await agent.arun_conversation("four")

        asyncio.run(turns())
        third, fourth = (told(request.body) for request in model.requests[2:])
    assert third == ["one", "A", "three"]
    assert fourth == ["one", "A", "three", "C", "four"]
    assert db.prefixes.break_count() == 0


def test_the_owner_holds_chats_and_decides_at_a_terminal(place: Place, db: SessionDB, home: Path) -> None:
    from hermes_state.turns.outbox import NewOutboxItem

    assert place.type("/hold") == "No chat is held: answers are sent at once. /hold on PLATFORM:CHAT holds one."
    assert place.type("/hold on") == "Name the chat: /hold on PLATFORM:CHAT."
    assert "answers to telegram:42 wait until you send them" in place.type("/hold on telegram:42")
    assert db.held_answers.is_held((), "telegram", "42") and not db.held_answers.is_held((), "telegram", "43")
    first, second = (
        db.outbox.enqueue(
            NewOutboxItem(dedup_key=key, platform="telegram", chat_id="42", payload={"text": key}, held=True)
        )
        for key in ("We open at ten.", "Bye.")
    )
    shown = place.type("/hold")
    assert f"answer {first.id} waits, for telegram:42: “We open at ten.”" in shown
    assert place.type("/held") == place.type("/held edit 1") == place.type("/held eat 1")
    assert place.type("/held send 99999") == "There is no held answer 99999."
    assert place.type(f"/held edit {first.id} We open at nine.").startswith("Your text is being sent.")
    sent = db.outbox.get(first.id)
    assert sent is not None and (sent.state, sent.payload["text"]) == ("pending", "We open at nine.")
    assert place.type(f"/held drop {second.id}").startswith("Dropped.")
    assert "already decided: not sent: dropped by " in place.type(f"/held send {second.id}")
    assert "/hold is not for members" in Place(db, somebody(db)).type("/hold on telegram:42")


def test_the_ledger_shows_the_newest_runs_of_a_person_with_very_many_reminders(place: Place) -> None:
    db, kept = place.db, list[str]()
    for number in range(101):
        place.type(f"/remind in 1 hour number {number} --to telegram:42")
        (job,) = db.jobs.list(person_id=place.person.id)
        kept.append(job.name)
        row = jobs.row_of(job, job.next_at or 0.0, late_after=1e12)
        assert db.jobs.settle([Step(job, [row], None)]) == 1
    shown = place.type("/cron ledger").splitlines()
    assert [line.rpartition("answered")[2].strip() for line in shown] == kept[:-16:-1]
