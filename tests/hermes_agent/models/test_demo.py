"""The demo model, through the real client and, where it calls tools, through a whole agent on a real store."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_agent.approvals.types import ApprovalQuestion, Choice
from hermes_agent.compression import summary
from hermes_agent.models import http, provider_table
from hermes_agent.models.base import Delta, ModelError, Reply
from hermes_agent.models.call import call, retried
from hermes_agent.models.demo import model as demo
from hermes_agent.models.demo import words as demo_words
from hermes_agent.tools import registry
from hermes_agent.turn import tool_calls
from hermes_config import config as configuration
from hermes_config.config import of as config_of
from hermes_state import SessionDB

pytestmark = pytest.mark.slow

Chat = Callable[..., AIAgent]
AT_ONCE = demo.endpoint(tokens_per_second=0)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def whole() -> Any:
        try:
            return await work
        finally:
            await http.close_clients()

    return asyncio.run(whole())


def body(*said: Any, system: str = "You are Hermes.", role: str = "owner", tools: bool = True) -> bytes:
    wire = provider_table.wire_for(AT_ONCE)
    rows = [{"role": "user", "content": one} if isinstance(one, str) else one for one in said]
    offered = tuple(tool.spec for tool in registry.shared().offered(config_of(Path(), {}), role=role)) if tools else ()
    return wire.join(wire.head(AT_ONCE, system, offered), wire.fragments(rows), wire.ending(AT_ONCE))


def ask(*said: Any, **request: Any) -> Reply:
    return run(call(AT_ONCE, body(*said, **request)))  # type: ignore[no-any-return]


def called(*said: Any, **request: Any) -> tuple[str, dict[str, Any]]:
    (call,) = ask(*said, **request).tool_calls
    return call.name, json.loads(call.arguments)


@pytest.mark.parametrize(
    ("words", "tool", "arguments"),
    [
        ("list the files here", "terminal", {"command": "ls -1p"}),
        ("Please show me the files in docs.", "terminal", {"command": "ls -1p docs"}),
        ("what files are here?", "terminal", {"command": "ls -1p"}),
        ("read README.md", "read_file", {"path": "README.md"}),
        ("show me src/main.py", "read_file", {"path": "src/main.py"}),
        ("delete the folder old", "terminal", {"command": "rm -r old"}),
        ("could you delete the old folder?", "terminal", {"command": "rm -r old"}),
        ('remove the folder "my; rm -rf ~"', "terminal", {"command": "rm -r 'my; rm -rf ~'"}),
        ("delete the file -rf", "terminal", {"command": "rm -- -rf"}),
        ("run git log | head -3", "terminal", {"command": "git log | head -3"}),
        ("write hello there to notes.txt", "write_file", {"path": "notes.txt", "content": "hello there\n"}),
        ("look for f(x) in the files", "search_files", {"pattern": r"f\(x\)", "target": "content"}),
        ("search our chats for 京都", "session_search", {"query": "京都"}),
        ("did we ever talk about the invoice?", "session_search", {"query": "the invoice"}),
        (
            "remember that Ada is allergic to nuts",
            "memory",
            {"action": "add", "target": "memory", "content": "Ada is allergic to nuts."},
        ),
        ("remember: I like tea", "memory", {"action": "add", "target": "user", "content": "I like tea."}),
        ("run sleep 20 in the background", "terminal", {"command": "sleep 20", "background": True}),
        ("run in the background: make", "terminal", {"command": "make", "background": True}),
        (
            "remind me in 5 minutes to eat",
            "cronjob",
            {"action": "add", "schedule": "in 5 minutes", "reminder": "eat"},
        ),
        (
            "Remind me to call Bob tomorrow at 9.",
            "cronjob",
            {"action": "add", "schedule": "tomorrow at 9", "reminder": "call Bob"},
        ),
        (
            "every day at 8 tell me a story",
            "cronjob",
            {"action": "add", "schedule": "every day at 8", "prompt": "tell me a story"},
        ),
        (
            "every 2h: list the files here",
            "cronjob",
            {"action": "add", "schedule": "every 2h", "prompt": "list the files here"},
        ),
        (
            "compare tea and coffee in parallel",
            "delegate_task",
            {"tasks": [{"goal": f"Say in one sentence what speaks for {one}."} for one in ("tea", "coffee")]},
        ),
        ("list the files here\n\n[a plug-in says: it is Monday]", "terminal", {"command": "ls -1p"}),
    ],
)
def test_understands_people_who_say_it_their_way(words: str, tool: str, arguments: dict[str, Any]) -> None:
    assert called(words) == (tool, arguments)


JOB = (
    "[This is your scheduled job “Morning”, due 08:00 (UTC). Your answer is sent to the person's chat; nobody can"
    " answer a question now. If there is nothing to tell, answer exactly [SILENT], and nothing is sent.]"
)
NOTES = [
    "[Since your last turn here, scheduled jobs sent this to the chat:\nEat, 08:00: eat\n\nand drink\nEnd of that.]",
    "[Your answer “list the files here” was not sent: the owner dropped it. The person has not seen it.]",
    "[The owner changed your answer “We open” before it was sent. The person read this instead:]\nAt nine.\n\nBye.",
    "[The conversation before this one was reset (idle); this one begins without it.]",
    JOB,
    f"{JOB}\n[Its script printed:]\n[1] a\n\nb\n[End of its output.]\n[Load these skills first: x.]",
]


@pytest.mark.parametrize("note", [*NOTES, "\n\n".join(NOTES[:4])])
def test_finds_the_words_behind_a_note_of_hermes(note: str) -> None:
    assert called(f"{note}\n\nlist the files here") == ("terminal", {"command": "ls -1p"})
    assert ask(f"{note}\n\nwhat is 6 * 7?").content == "6 * 7 = 42"
    earlier = (f"{note}\n\nwhat is 6 * 7?", {"role": "assistant", "content": "42"}, f"{note}\n\nwhat did I just say?")
    assert ask(*earlier).content == "You just said: “what is 6 * 7?”"


def test_says_something_about_a_job_a_process_and_delegated_work() -> None:
    job = ask(f"{JOB}\n\ntell me a joke").content or ""
    assert job.startswith("It is time for “Morning”: tell me a joke ")
    ended = "[Background process proc_1: exit code 3, after 20.1 s.]\nCommand: make all\nOutput (4 bytes):\nno\n\nyes"
    said = ask(ended).content or ""
    assert said.startswith("`make all`, which ran in the background as proc_1, has ended: exit code 3, after 20.1 s.")
    assert "```\nno\n\nyes\n```" in said
    quiet = ask(f"{NOTES[0]}\n\n{ended.split('Output', maxsplit=1)[0]}It printed nothing.").content or ""
    assert quiet.endswith("exit code 3, after 20.1 s. It printed nothing.")
    work = "[The work that you delegated has ended.]\n\n## 1. Sum up a.txt\nIt is short.\n\n## 2. Sum up b.txt\nLong."
    assert (ask(work).content or "").endswith("- It is short.\n- Long.")


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ("The person gave permission, and it ran. Its result:\n(no output)\n[exit code 0]", "Done: `rm -r old` ran "),
        ("It was not run: the person said no (later). Do not work around it.", "All right, I left it alone: you said"),
        (
            "The person gave permission, but it was not run:\nthe folder has changed.",
            "All right, I left it alone: the",
        ),
        (tool_calls.LOST, "I was lost in the middle of that"),
    ],
)
def test_knows_the_call_whose_question_was_answered_later(result: str, answer: str) -> None:
    name, arguments = called("delete the folder old")
    function = {"name": name, "arguments": json.dumps(arguments)}
    step = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    waits = {"role": "tool", "tool_call_id": "1", "content": "The command was not run: it waits (ask_1)."}
    meanwhile = "what is 6 * 7?", {"role": "assistant", "content": "42"}
    about = f"[About the call {name} that waited for permission (ask_1):]\n{result}"
    for between in ((), meanwhile):
        assert (ask("delete the folder old", step, waits, *between, about).content or "").startswith(answer)


def test_every_call_is_one_the_offered_tool_takes() -> None:
    from hermes_agent.tools import arguments

    lines = [words for line in demo_words.CAN.splitlines() for words in line.removeprefix("- ").split(", or: ")]
    for line in lines:
        words = line.split(" (I will")[0].split(" (about")[0].split(" (two")[0]
        if words.startswith(("be slow", "fail with")):
            continue
        reply = ask(words)
        assert reply.tool_calls or (reply.content and "do not understand" not in reply.content), words
        for made in reply.tool_calls:
            tool = registry.shared().get(made.name)
            assert tool is not None
            arguments.parse(made.arguments, tool.parameters, longest=10_000)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("what is 17 * 7?", "17 * 7 = 119"),
        ("0.1 + 0.2", "0.1 + 0.2 = 0.3"),
        ("1/3", "1/3 = 0.333333333333"),
        ("what is 5/0?", "That sum has no value I could say."),
    ],
)
def test_sums(words: str, answer: str) -> None:
    assert ask(words).content == answer


@pytest.mark.parametrize("words", ["Hello!", "hi there", "good morning"])
def test_greets_back(words: str) -> None:
    assert (ask(words).content or "").startswith("Hello! I am the built-in demo model")


@pytest.mark.parametrize("words", ["what can you do?", "what is the meaning of life?", "", "🙂" * 300, "x" * 100_000])
def test_says_what_it_is_and_what_it_can_do(words: str) -> None:
    content = ask(words).content or ""
    assert "I am the built-in demo model: scripted, not clever." in content
    assert "list the files here" in content


def test_knows_what_was_just_said_and_nothing_else() -> None:
    earlier = ("my cat is called Byte", {"role": "assistant", "content": "Nice."}, "what did I just say?")
    assert ask(*earlier).content == "You just said: “my cat is called Byte”"
    assert "first message" in (ask("what did I just say?").content or "")
    compacted = (summary.message("a long story", "user"), "what did I say first?")
    assert "first message" in (ask(*compacted).content or ""), "a machine's summary is nobody's words"


def test_the_same_request_gets_the_same_bytes_and_another_call_another_id() -> None:
    first, again = ask("list the files here"), ask("list the files here")
    assert first == again
    other = ask("list the files here", {"role": "assistant", "content": "Later."}, "list the files here")
    assert first.tool_calls[0].id != other.tool_calls[0].id


def test_streams_in_pieces_and_says_what_it_used() -> None:
    heard: list[Delta] = []
    reply = run(call(AT_ONCE, body("tell me the long story"), heard.append))
    assert reply.content == "".join(delta.text for delta in heard) == demo_words.STORY
    assert len(heard) > 500
    assert reply.usage.output_tokens > 500
    assert reply.usage.input_tokens > 1_000


def test_keeps_to_max_tokens() -> None:
    request = json.loads(body("tell me the long story"))
    request["max_tokens"] = 10
    reply = run(call(AT_ONCE, json.dumps(request).encode()))
    assert (reply.finish_reason, len((reply.content or "").split())) == ("length", 10)


def test_streams_at_the_pace_that_is_set_and_tells_stories_slowly() -> None:
    fast = demo.endpoint(tokens_per_second=200)
    began = time.monotonic()
    assert run(call(fast, body("what did I just say?"))).content.startswith("Nothing yet")
    assert time.monotonic() - began >= 12 / 200
    words = len(demo_words.STORY.split())
    assert 60 <= words / (demo.TOKENS_PER_SECOND * 0.4) <= 95, "the story takes a minute to a minute and a half"


def test_an_answer_that_is_given_up_ends_at_once() -> None:
    async def leave() -> None:
        heard: list[Delta] = []
        task = asyncio.create_task(call(demo.endpoint(), body("tell me the long story"), heard.append))
        while not heard:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        count = len(heard)
        await asyncio.sleep(0.2)
        assert len(heard) == count

    run(leave())


def test_is_slow_when_told() -> None:
    began = time.monotonic()
    assert ask("be slow 0.2").content == "That took 0.2 s, as you asked."
    assert called("be slow 0.1, and list the files here") == ("terminal", {"command": "ls -1p"})
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize(
    ("words", "kind", "status"),
    [
        ("fail with 429", "rate_limit", 429),
        ("fail with a 500", "server", 500),
        ("fail with 401", "auth", 401),
        ("fail with 529", "overloaded", 529),
        ("fail with disconnect", "network", None),
        ("fail with garbage", "protocol", None),
        ("fail with overflow", "context_overflow", 400),
    ],
)
def test_fails_when_told(words: str, kind: str, status: int | None) -> None:
    with pytest.raises(ModelError) as caught:
        ask(words)
    assert (caught.value.kind, caught.value.status) == (kind, status)
    assert "\n" not in caught.value.one_line()


def test_fails_as_often_as_told_and_then_goes_through() -> None:
    tries: list[str] = []

    async def twice() -> Reply:
        request = body("fail twice with 500")
        return await retried(
            lambda: call(AT_ONCE, request),
            max_retries=3,
            first_wait=0.001,
            on_retry=lambda retry: tries.append(retry.error.kind),
        )

    assert "this attempt went through" in (run(twice()).content or "")
    assert tries == ["server", "server"]


def test_says_so_when_a_tool_is_not_offered() -> None:
    reply = ask("delete the folder old", role="guest")
    assert not reply.tool_calls
    assert "`terminal`" in (reply.content or "")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"messages": []}', b'{"messages": ["x"]}', b"[1]"])
def test_refuses_what_it_cannot_read(content: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        run(call(AT_ONCE, content))
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


# -- what Hermes itself asks for -----------------------------------------------------------------------------------


def _long_talk() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "Help me plan a trip to Kyoto in April. Never book anything above 900 euros."},
        {"role": "assistant", "content": "Gladly. I will keep every booking under 900 euros."},
    ]
    for number in range(30):
        call = {
            "id": f"call_x{number}y",
            "function": {"name": "read_file", "arguments": f'{{"path": "plan{number}.md"}}'},
        }
        rows += [
            {
                "role": "user",
                "content": f"Look at plan{number}.md and tell me about day {number}. " + "Some detail. " * 10,
            },
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "tool_name": "read_file", "content": "temples and tea\n" * 60},
            {"role": "assistant", "content": f"Day {number} has temples and tea. " + "It looks good. " * 10},
        ]
    return [*rows, {"role": "user", "content": "Which ryokan was it that had the maple garden?"}]


def test_writes_a_summary_that_is_one() -> None:
    middle = _long_talk()
    prompt = summary.prompt(middle, previous=["## Goal\n- Ada pays"], focus=None, budget=800, most_chars=60_000)
    text = ask(prompt, system="You write summaries of conversations.", tools=False).content or ""
    assert summary.problem(text, middle) is None
    assert len(text) < 800 * 4 < len(prompt) / 2
    assert "Never book anything above 900 euros" in text
    assert "maple garden" in text
    assert "plan29.md" in text
    assert "Ada pays" in text
    assert text.startswith("## Goal")


def test_writes_a_title() -> None:
    asked = "PERSON: please help me plan a trip to Kyoto in April, will you?\n\nASSISTANT: Gladly."
    system = "You write a short title for a conversation. You answer with the title alone."
    title = ask(asked, system=system, tools=False).content
    assert title == "Help me plan a trip to"
    assert ask("PERSON: what is **6*7** in my_file?", system=system, tools=False).content == "What is 6*7 in my_file"
    assert ask("tell me a story", system="You love titles.").content == demo_words.STORY, "an ordinary chat"


# -- with everything around it real --------------------------------------------------------------------------------


class Answers:
    """A person who answers every question the same way."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.asked: list[str] = []

    async def ask(self, question: ApprovalQuestion) -> Choice:
        self.asked.append(question.command)
        return self.choice


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "letter.txt").write_text("dear me")
    (folder / "README.md").write_text("# The desk\n\nThings lie about.\n")
    return folder


def talk(agent: AIAgent, *words: str) -> list[str]:
    async def turns() -> list[str]:
        return [(await agent.arun_conversation(one))["final_response"] for one in words]

    return run(turns())  # type: ignore[no-any-return]


@pytest.fixture
def chat(db: SessionDB, home: Path, work: Path) -> Chat:
    """A new conversation with the demo model, as a home's configuration selects it."""
    home.mkdir(mode=0o700, exist_ok=True)

    def begin(approver: Answers | None = None, *, settings: str = "auto_title: false\n") -> AIAgent:
        (home / "config.yaml").write_text(f"model: demo\ndemo:\n  tokens_per_second: 0\n{settings}")
        return AIAgent(session_db=db, config=configuration.load(home), workdir=work, approver=approver)

    return begin


def test_lists_and_reads_what_is_really_there(chat: Chat) -> None:
    listed, read = talk(chat(), "list the files here", "read README.md")
    assert "1 folder and 1 file here" in listed
    assert "`old/`" in listed
    assert "`README.md`" in listed
    assert "`README.md` has 3 lines" in read
    assert "Things lie about." in read


def test_deletes_only_with_leave(chat: Chat, work: Path) -> None:
    no, yes = Answers("deny"), Answers("once")
    (refused,) = talk(chat(no), "delete the folder old")
    assert refused == "All right, I left it alone: you said no. Nothing was changed."
    assert (work / "old").exists()
    (done,) = talk(chat(yes), "delete the folder old")
    assert done.startswith("Done: `rm -r old` ran")
    assert not (work / "old").exists()
    assert no.asked == yes.asked == ["rm -r old"]
    (nobody,) = talk(chat(), "delete the folder README.md")
    assert "nobody here who could be asked" in nobody
    assert (work / "README.md").exists()


def test_remembers_and_searches_what_was_said(chat: Chat, home: Path) -> None:
    noted, *_rest = talk(chat(), "remember that Ada is allergic to nuts", "the ryokan is in 京都")
    assert noted.startswith("I will remember: Ada is allergic to nuts.")
    assert "Ada is allergic to nuts." in (home / "memories" / "MEMORY.md").read_text()
    found, none = talk(chat(), "search our chats for 京都", "search our chats for zeppelin")
    assert "the ryokan is in **京都**" in found
    assert "found nothing" in none


def test_names_the_conversation_after_what_was_asked(chat: Chat, db: SessionDB) -> None:
    agent = chat(settings="")

    async def titled() -> str | None:
        await agent.arun_conversation("please list the files here, will you?")
        for _ in range(500):
            if title := db.get_session_title(agent.session_id):
                return title
            await asyncio.sleep(0.01)
        return None

    assert run(titled()) == "List the files here, will you"


def test_starts_a_background_process_and_asks_two_helpers(chat: Chat) -> None:
    started, both = talk(chat(), "run sleep 3 in the background", "compare tea and coffee")
    assert started.startswith("`sleep 3` runs in the background as ")
    assert "about tea and one about coffee" in both
    assert "- One thing speaks for tea: " in both
    assert "- One thing speaks for coffee: " in both
