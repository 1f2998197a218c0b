"""The short conversations of the demo home, as data: made up, in several languages, from several places."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

Turn = dict[str, Any]


def user(content: str) -> Turn:
    return {"role": "user", "content": content}


def assistant(content: str) -> Turn:
    return {"role": "assistant", "content": content}


def summary(content: str) -> Turn:
    """What a compression leaves of the messages before it."""
    return user(f"[Summary of the conversation so far, written by a machine] {content}")


def tool(name: str, arguments: dict[str, Any], result: str) -> tuple[Turn, Turn]:
    """A tool call, and what came back."""
    call_id = f"call_{name}"
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_name": name, "tool_call_id": call_id},
    )


class Chat(NamedTuple):
    """One conversation, told in one go; `age` is how long ago it fell silent."""

    source: str
    title: str
    age: float
    turns: tuple[Turn, ...]
    person: str = ""
    ended: str = ""
    archived: bool = False


CHATS = (
    Chat(
        "api_server",
        "Invoice 2231",
        HOUR + MINUTE,
        (
            user("Check invoice 2231 against order 889 and tell me the difference."),
            *tool("read_file", {"path": "invoices/2231.pdf"}, "total 1,284.50 EUR, 14 positions"),
            assistant("The invoice is 84.50 EUR above the order: express delivery, which nobody ordered."),
        ),
    ),
    Chat(
        "telegram",
        "猫の名前",
        7 * HOUR + MINUTE,
        (
            user("子猫をもらいました。白くて、とても小さいです。名前を考えてください。"),
            assistant("「ゆき」「もち」「こはる」はどうでしょう。白い子なら「もち」がかわいいと思います。🐱"),
            user("もちにします！"),
        ),
        person="Yuki",
    ),
    Chat(
        "telegram",
        "Geburtstag bei Oma",
        DAY + HOUR,
        (
            user("Oma wird achtzig. Was schenken wir, und wer bringt den Käsekuchen mit?"),
            assistant("Ein Fotobuch über Grönland, wo sie immer hinwollte. Der Käsekuchen: Jürgen, wie jedes Jahr."),
        ),
        person="Jonas",
    ),
    Chat(
        "cli",
        "Parser refactor",
        2 * DAY + HOUR,
        (
            user("The parser copies every token twice. Where?"),
            *tool("search_files", {"pattern": "copy", "path": "src/parser"}, "lexer.py:88: return copy(token)"),
            assistant("lexer.py line 88: tokens are frozen, so the copy can go. A third less time in the benchmark."),
            user("Do it, and run the tests."),
            *tool("run", {"command": "make test"}, "412 passed in 8.21s"),
            assistant("Done: 412 tests pass."),
        ),
        ended="cli_close",
    ),
    Chat(
        "discord",
        "Ryokan or hotel?",
        3 * DAY + HOUR,
        (
            user("First time in Japan: ryokan or hotel?"),
            assistant("Two nights in a ryokan for the bath and the breakfast, a hotel near a station for the rest."),
        ),
        person="Sam",
    ),
    Chat(
        "cron",
        "Nightly backup",
        4 * DAY + HOUR,
        (
            user("Verify last night's backup."),
            *tool("run", {"command": "hermes backup verify"}, "integrity ok, 12 conversations"),
            assistant("Verified ✅"),
        ),
        ended="cron_complete",
    ),
    Chat(
        "telegram",
        "北京的天气",
        5 * DAY + HOUR,
        (
            user("下周去北京出差，需要带厚外套吗？"),
            assistant("需要。北京下周早晚只有五度左右，白天十二度，风比较大。"),
            user("从京都带的那件够不够？"),
            assistant("够了，里面再加一件毛衣就好。"),
        ),
        person="Lin",
    ),
    Chat(
        "cli",
        "Garden plan 🌱",
        9 * DAY + HOUR,
        (
            user("What can I sow in November in a cold frame?"),
            assistant("Broad beans, lamb's lettuce and winter purslane. 🥬 Cover them when it freezes."),
        ),
        ended="cli_close",
    ),
    Chat(
        "api_server",
        "Translate the manual",
        13 * DAY + HOUR,
        (
            user("Translate chapter 3 of the pump manual into French."),
            assistant("Chapitre 3 : mise en service. Avant le premier démarrage, fermez la vanne d'aspiration…"),
        ),
    ),
    Chat(
        "telegram",
        "Bike repair",
        40 * DAY + HOUR,
        (
            user("The chain jumps on the two smallest sprockets only."),
            assistant("Those two are worn. A new cassette and chain together, or the new chain will jump as well."),
        ),
        person="Ada",
        archived=True,
    ),
)
