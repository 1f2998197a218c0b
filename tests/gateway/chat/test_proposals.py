"""Changes of skills and memory that a model proposes: cards, decisions, and that nothing is written without a yes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateways import PretendGateway

from gateway import run
from hermes_agent.knowledge import proposals, skill_source
from hermes_config import config as configuration
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, call, say
from hermes_testing.scripted.steps import Step

pytestmark = pytest.mark.slow

SKILL = "---\nname: bread\ndescription: How we bake. Read it before you plan.\n---\nA loaf takes 500 g of flour.\n"


@pytest.fixture(autouse=True)
def cards_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway looks for new proposals every few seconds; here it looks all the time."""
    monkeypatch.setattr(run, "_CARD_SECONDS", 0.02)


def proposes(**args: Any) -> Step:
    wanted = {"action": "create", "name": "bread", "content": SKILL, "why": "you bake every week", **args}
    return say(calls=[call("use_tool", {"name": "skill_manage", "arguments": wanted})])


def talk(
    db: SessionDB, home: Path, steps: tuple[Step, ...], then: Callable[[PretendGateway], Any], **config: Any
) -> ScriptedModel:
    async def go() -> ScriptedModel:
        with ScriptedModel(*steps) as model:
            async with PretendGateway(db, home, model, **config) as here:
                await here.chat.say("we baked bread today")
                await here.quiet()
                await then(here)
            return model

    return asyncio.run(go())


def files(home: Path) -> dict[str, str]:
    found = [path for folder in ("skills", "memories") for path in (home / folder).rglob("*") if path.is_file()]
    return {path.relative_to(home).as_posix(): text for path in found if (text := path.read_text())}


async def card(here: PretendGateway) -> Any:
    return await here.until(lambda: next((one for one in here.chat.messages if "I propose to" in one.text), None))


async def press(here: PretendGateway, label: str) -> str:
    """Press a button of the card; what Hermes answers."""
    shown = await card(here)
    before = len(here.chat.messages)
    (button,) = [one for row in shown.buttons for one in row if one.label == label]
    await here.chat.press(button)
    await here.quiet()
    return str(here.chat.messages[before].text)


def test_a_skill_is_written_by_a_yes_and_undone(db: SessionDB, home: Path) -> None:
    async def then(here: PretendGateway) -> None:
        text = (await card(here)).text
        assert "**I propose to add the skill bread**: you bake every week" in text and "+A loaf takes 500 g" in text
        assert files(home) == {}
        assert "Done: the skill bread is as proposed" in await press(here, "Accept")
        assert files(home) == {"skills/bread/SKILL.md": SKILL}
        assert "already decided: accepted" in await press(here, "Refuse")
        await here.chat.say(f"/proposals undo {db.proposals.list()[0].id}")
        await here.quiet()
        assert "Undone" in here.chat.messages[-1].text and files(home) == {}

    talk(db, home, (proposes(), say("I proposed it.")), then)


def test_other_words_are_taken_and_a_refusal_changes_nothing(db: SessionDB, home: Path) -> None:
    async def then(here: PretendGateway) -> None:
        await card(here)
        first, second = (one.id for one in reversed(db.proposals.list(state="open")))
        await here.chat.say(f"/proposals refuse {first}")
        await here.chat.say(f"/proposals edit {second} not a skill")
        await here.quiet()
        assert "needs" in here.chat.messages[-1].text or "is no SKILL.md" in here.chat.messages[-1].text
        assert files(home) == {}
        mine = SKILL.replace("500 g", "450 g")
        await here.chat.say(f"/proposals edit {second} {mine}")
        await here.quiet()
        assert files(home) == {"skills/bread/SKILL.md": mine}

    talk(db, home, (proposes(), proposes(content=SKILL.replace("loaf", "roll")), say("Two ideas.")), then)


def test_a_file_that_was_changed_meanwhile_stays(db: SessionDB, home: Path) -> None:
    async def then(here: PretendGateway) -> None:
        await card(here)
        (home / "skills" / "bread").mkdir(parents=True)
        (home / "skills" / "bread" / "SKILL.md").write_text("mine")
        assert "was changed by somebody else" in await press(here, "Accept")
        assert files(home) == {"skills/bread/SKILL.md": "mine"}

    talk(db, home, (proposes(), say("ok")), then)


def test_a_member_decides_about_no_skill(db: SessionDB, home: Path) -> None:
    async def then(here: PretendGateway) -> None:
        number = db.proposals.list()[0].id
        await here.chat.say(f"/proposals accept {number}", "7")
        await here.quiet()
        told = [one.text for one in here.chat.messages if one.chat_id == "7"]
        assert "there is no proposal" in told[-1] and files(home) == {}

    talk(db, home, (proposes(), say("ok")), then)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"name": "../../etc"}, "is not a valid file name"),
        ({"file_path": "../../../config.yaml"}, "is not a valid file name"),
        ({"file_path": "bin/x"}, "is not a valid folder"),
        ({"content": "no front matter"}, "needs name and description"),
        ({"content": ""}, "content is missing"),
        ({"action": "delete", "name": "nothing"}, "there is no skill"),
    ],
)
def test_what_cannot_be_a_skill_is_refused(db: SessionDB, home: Path, args: dict[str, Any], why: str) -> None:
    async def then(here: PretendGateway) -> None:
        assert db.proposals.list() == ()

    model = talk(db, home, (proposes(**args), say("ok")), then)
    assert why in str(model.requests[-1].messages[-1]["content"])


def test_a_skill_is_a_command(db: SessionDB, home: Path) -> None:
    (home / "skills" / "bread").mkdir(parents=True)
    (home / "skills" / "bread" / "SKILL.md").write_text(SKILL)

    async def then(here: PretendGateway) -> None:
        await here.chat.say("/bread ten loaves")
        await here.quiet()
        assert here.chat.messages[-1].text == "5 kg of flour."
        await here.chat.say("/breda")
        await here.quiet()
        assert "There is no command /breda" in here.chat.messages[-1].text

    model = talk(db, home, (say("hello"), say("5 kg of flour.")), then)
    asked = str(model.requests[-1].messages[-1]["content"])
    assert "Use the skill bread" in asked and asked.endswith("ten loaves")


# -- memory ------------------------------------------------------------------------------------------------------------


def test_when_memory_is_full_the_person_is_told_and_offered_what_to_merge(db: SessionDB, home: Path) -> None:
    def kept() -> str:
        (found,) = [text for name, text in files(home).items() if name.endswith("MEMORY.md")]
        return found

    def remember(**args: Any) -> Step:
        return say(calls=[call("memory", args)])

    merged = {"action": "replace", "old_text": "with seeds", "content": "Likes rye bread, best with seeds."}
    operations = [merged, {"action": "remove", "old_text": "Likes rye bread."}]

    async def then(here: PretendGateway) -> None:
        assert any("My memory of you is full" in one for one in here.chat.chat())
        assert kept() == "Likes rye bread.\n§\nLikes rye bread with seeds."
        assert "+Likes rye bread, best with seeds." in (await card(here)).text
        assert "Done" in await press(here, "Accept")
        assert kept() == "Likes rye bread, best with seeds."

    full = remember(action="add", content="Bakes on Sundays, always at eight.")
    known = [remember(action="add", content=one) for one in ("Likes rye bread.", "Likes rye bread with seeds.")]
    steps = (*known, full, remember(operations=operations), say("I proposed a merge."))
    talk(db, home, steps, then, memory={"memory_char_limit": 50})


def test_every_memory_waits_for_a_yes_where_that_is_wanted(db: SessionDB, home: Path) -> None:
    async def then(here: PretendGateway) -> None:
        await card(here)
        assert files(home) == {}
        await press(here, "Refuse")
        assert files(home) == {}

    steps = (say(calls=[call("memory", {"action": "add", "content": "Bakes."})]), say("ok"))
    talk(db, home, steps, then, memory={"write_approval": True})


# -- the review --------------------------------------------------------------------------------------------------------

FOUND = {
    "memory": [{"action": "add", "target": "user", "content": "Bakes bread on Sundays.", "why": "you said so"}],
    "skills": [{"name": "bread", "content": SKILL, "why": "it worked"}, {"name": "../x", "content": SKILL}],
}


def reviewed(db: SessionDB, home: Path, answer: Step) -> ScriptedModel:
    async def go() -> ScriptedModel:
        with ScriptedModel(say("It smells good."), answer) as model:
            async with PretendGateway(db, home, model, memory={"nudge_interval": 1}) as here:
                await here.chat.say("we baked bread today")
                await here.quiet()
                await here.until(lambda: len(model.requests) == 2)
                ((agent, *_),) = here.parts.agents.entries.values()
                await here.until(lambda: not agent._beside)
            return model

    return asyncio.run(go())


def test_a_review_that_fails_because_of_a_defect_is_logged(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hermes_agent.knowledge.review._proposed", lambda *_: {}["defect"])
    reviewed(db, home, say("{}"))
    (logged,) = [one for one in caplog.records if getattr(one, "action", "") == "beside_failed"]
    assert getattr(logged, "reason", "") == "KeyError"


def test_a_review_that_would_have_to_ask_for_its_cost_is_not_made(db: SessionDB, home: Path) -> None:
    async def go() -> None:
        with ScriptedModel(say("It smells good.")) as model, ScriptedModel(model="dear-1").served() as dear:
            entry = dear.model.settings(dear.origin)
            entry["model"] = entry.pop("default")
            prices = {
                "scripted-1": {"price": {"input": 0, "output": 0}},
                "dear-1": {"price": {"input": 9, "output": 9}},
            }
            settings: dict[str, Any] = {
                "memory": {"nudge_interval": 1}, "auxiliary": {"review": entry}, "models": prices,
                "budget": {"ask_usd": 0.01},
            }  # fmt: skip
            async with PretendGateway(db, home, model, **settings) as here:
                await here.chat.say("we baked bread today")
                await here.quiet()
                ((agent, *_),) = here.parts.agents.entries.values()
                await here.until(lambda: not agent._beside)
            assert len(model.requests) == 1 and dear.model.received == 0

    asyncio.run(go())


def test_a_review_proposes_on_the_stored_prefix_and_writes_nothing(db: SessionDB, home: Path) -> None:
    model = reviewed(db, home, say(json.dumps(FOUND)))
    first, second = (json.loads(request.body) for request in model.requests)
    assert second["tools"] == first["tools"]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert sorted((one.kind, one.file, one.state) for one in db.proposals.list()) == [
        ("memory", "user", "open"), ("skill", "bread/SKILL.md", "open"),
    ]  # fmt: skip
    assert files(home) == {}
    (session,) = db.list_sessions_rich()
    assert [row["role"] for row in db.get_messages(session["id"])] == ["user", "assistant"]


@pytest.mark.parametrize(
    "answer",
    [
        say("I think nothing is worth it."),
        say("{broken"),
        say("[1, 2]"),
        say(calls=[call("terminal", {"command": "touch reviewed"})]),
        say('{"memory": {"action": "add"}, "skills": "all"}'),
        say('{"memory": [{"action": "add", "content": ""}], "skills": [{"name": "a"}]}'),
    ],
)
def test_a_review_that_answers_anything_else_does_nothing(db: SessionDB, home: Path, answer: Step) -> None:
    reviewed(db, home, answer)
    assert (db.proposals.list(), files(home)) == ((), {})
    assert not (home / "workspace" / "reviewed").exists()


def test_a_crash_at_any_step_of_a_decision_leaves_a_file_only_with_a_yes(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of accept fails once; afterwards a refusal leaves the file as it was, or a second yes writes it."""
    home.mkdir(exist_ok=True)
    loaded, owner = configuration.load(home), db.people.owner()
    for failing in ("replace", "fsync", "commit"):
        for then, expected in (("refuse", {}), ("accept", {"skills/bread/SKILL.md": SKILL})):
            made = proposals.propose_skill(db, loaded, "bread/SKILL.md", SKILL, why="x", person_id=owner.id)
            with monkeypatch.context() as patched:
                if failing == "commit":

                    def written(config: Any, one: Any, real: Any = proposals._write) -> bool:
                        real(config, one)
                        raise OSError("lost")

                    patched.setattr(proposals, "_write", written)
                else:

                    def broken(*_: Any, **__: Any) -> None:
                        raise OSError(5, "lost")

                    patched.setattr(os, failing, broken)
                with pytest.raises(Exception, match="lost"):
                    proposals.decide(db, loaded, made.id, "accept", owner)
            now = db.proposals.get(made.id)
            assert now is not None and now.state == "open"
            proposals.decide(db, loaded, made.id, then, owner)  # type: ignore[arg-type]
            assert files(home) == expected
            if then == "accept":
                proposals.decide(db, loaded, made.id, "undo", owner)
    assert files(home) == {}


def test_a_crash_after_the_write_of_an_edit_or_an_undo_is_made_good(
    db: SessionDB, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(exist_ok=True)
    loaded, owner = configuration.load(home), db.people.owner()

    def lost(config: Any, one: Any, real: Any = proposals._write) -> bool:
        real(config, one)
        raise OSError("lost")

    def crashed(choice: Any, **more: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(proposals, "_write", lost)
            with pytest.raises(OSError, match="lost"):
                proposals.decide(db, loaded, made.id, choice, owner, **more)

    made = proposals.propose_skill(db, loaded, "bread/SKILL.md", SKILL, why="x", person_id=owner.id)
    crashed("edit", text=SKILL.replace("500", "450"))
    assert "Refused" in proposals.decide(db, loaded, made.id, "refuse", owner) and files(home) == {}
    made = proposals.propose_skill(db, loaded, "bread/SKILL.md", SKILL, why="x", person_id=owner.id)
    proposals.decide(db, loaded, made.id, "accept", owner)
    crashed("undo")
    assert "Undone" in proposals.decide(db, loaded, made.id, "undo", owner) and files(home) == {}


# -- installing --------------------------------------------------------------------------------------------------------


def git(folder: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_skill_is_installed_from_a_pinned_commit_and_undone(home: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "bread" / "scripts").mkdir(parents=True)
    (there / "bread" / "SKILL.md").write_text(SKILL)
    (there / "bread" / "scripts" / "weigh.py").write_text("print(500)\n")
    (there / "bread" / "loaf.png").write_bytes(b"\x89PNG\0")
    (there / "bread" / "link").symlink_to("/etc/passwd")
    git(there, "init", "-q")
    git(there, "add", ".")
    git(there, "commit", "-q", "-m", "bread")
    commit = git(there, "rev-parse", "HEAD")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "scratch")

    def hermes(*args: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "HERMES_HOME": str(home), "TMPDIR": str(tmp_path / "link")}
        command = [sys.executable, "-m", "hermes_cli", *args]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    refused = hermes("skills", "install", f"file://{there}", "--yes")
    assert refused.returncode == 1 and "not pinned" in refused.stderr
    done = hermes("skills", "install", f"file://{there}@{commit}", "--yes")
    assert done.returncode == 0, done.stderr
    assert "+A loaf takes 500 g" in done.stdout and "left out" in done.stdout
    assert files(home) == {"skills/bread/SKILL.md": SKILL, "skills/bread/scripts/weigh.py": "print(500)\n"}
    again = hermes("skills", "install", str(there / "bread"), "--yes")
    assert "Nothing to do" in again.stdout
    assert hermes("skills", "undo", "bread").returncode == 0
    assert files(home) == {}


def test_a_repository_runs_nothing_on_this_machine(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of a template, filters of the person's own git and submodules: none of them has a part in it."""
    there, mine = tmp_path / "there", tmp_path / "mine"
    (there / "bread").mkdir(parents=True)
    (there / "bread" / "SKILL.md").write_text(SKILL)
    (there / ".gitattributes").write_text("* filter=shout ident\n")
    (there / ".gitmodules").write_text('[submodule "x"]\n path = x\n url = file:///nowhere\n')
    git(there, "init", "-q")
    git(there, "add", ".")
    git(there, "commit", "-q", "-m", "bread")
    hook = mine / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\necho hooked > bread/hooked.md\n")
    hook.chmod(0o755)
    (mine / ".gitconfig").write_text(
        f'[filter "shout"]\n smudge = tr a-z A-Z\n required = true\n[init]\n templateDir = {hook.parents[1]}\n'
    )
    monkeypatch.setenv("HOME", str(mine))
    source = f"file://{there}@{git(there, 'rev-parse', 'HEAD')}"
    with skill_source.opened(source, configuration.of(home, {})) as found:
        assert [(one.name, one.files) for one in found] == [("bread", {"SKILL.md": SKILL})]


@pytest.mark.parametrize(
    "source",
    [
        "https://example.org/s.git", "https://example.org/s.git@main", "https://example.org/s.git@0123abc",
        f"https://example.org/s.git@{'g' * 40}", f"ext::sh -c id@{'0' * 40}", f"http://example.org/s.git@{'0' * 40}",
        f"--upload-pack=id@{'0' * 40}", f"https://example.org/s.git@{'0' * 39}",
        f"ssh://-oProxyCommand=id/x@{'0' * 40}",
    ],
)  # fmt: skip
def test_what_is_not_pinned_or_no_address_for_git_is_refused(home: Path, source: str) -> None:
    with pytest.raises(skill_source.SkillSourceError), skill_source.opened(source, configuration.of(home, {})):
        pass


def test_files_keep_their_places_and_undo_means_exactly_this_skill(home: Path, tmp_path: Path) -> None:
    for name in ("bread", "cake"):
        (tmp_path / name / "references").mkdir(parents=True)
        (tmp_path / name / "SKILL.md").write_text(SKILL.replace("name: bread", f"name: {name}"))
        (tmp_path / name / "forms.md").write_text("read me")
        (tmp_path / name / "references" / "forms.md").write_text("me too")

    def hermes(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hermes_cli", "skills", *args]
        environ = {**os.environ, "HERMES_HOME": str(home)}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    for name, more in (("bread", ()), ("cake", ("--category", "kitchen"))):
        done = hermes("install", str(tmp_path / name), "--yes", *more)
        assert done.returncode == 0, done.stderr
    expected = {"bread/SKILL.md", "bread/forms.md", "bread/references/forms.md"}
    assert {one for one in files(home) if "bread" in one} == {f"skills/{one}" for one in expected}
    for no_skill in ("references", "kitchen", "skills", "forms.md"):
        assert "no change of the skill" in hermes("undo", no_skill).stderr
    assert hermes("undo", "kitchen/cake").returncode == 0
    assert {one.split("/")[1] for one in files(home)} == {"bread"}
    assert hermes("undo", "bread").returncode == 0 and files(home) == {}


@pytest.mark.parametrize("hidden", ["x" * 400 + " and copy eve", "\n".join(map(str, range(100))) + "\nand copy eve"])
def test_a_card_shows_all_of_the_change(db: SessionDB, home: Path, hidden: str) -> None:
    async def then(here: PretendGateway) -> None:
        await here.until(lambda: any("and copy eve" in one.text for one in here.chat.messages))

    talk(db, home, (proposes(content=SKILL + hidden), say("ok")), then)


def test_what_no_card_can_show_has_no_button_to_accept_it(db: SessionDB, home: Path) -> None:
    async def then(here: PretendGateway) -> None:
        first = await card(here)
        assert "not all of it" in first.text
        await here.until(lambda: any(one.buttons for one in here.chat.messages))
        labels = [one.label for message in here.chat.messages for row in message.buttons for one in row]
        assert labels == ["Refuse"]

    talk(db, home, (proposes(content=SKILL + "line of text\n" * 2_000), say("ok")), then)


def test_the_end_of_a_large_file_is_not_lost_by_a_small_change(db: SessionDB, home: Path) -> None:
    config = configuration.of(home, {})
    (home / "skills" / "bread" / "references").mkdir(parents=True)
    large = home / "skills" / "bread" / "references" / "long.md"
    large.write_text("flour\n" * (config.limits.skill_file_bytes // 5))
    with pytest.raises(proposals.ProposalRefused, match="larger than"):
        proposals.read_skill(config, "bread/references/long.md")


def test_a_folder_that_is_a_link_is_no_skill_of_the_source(home: Path, tmp_path: Path) -> None:
    private, source = tmp_path / "private", tmp_path / "source"
    for folder in (private, source / "bread"):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL)
    (private / "notes.md").write_text("mine")
    (source / "linked").symlink_to(private)
    with skill_source.opened(str(source), configuration.of(home, {})) as found:
        assert [one.name for one in found] == ["bread"]
