"""The made-up home of `hermes demo`: a dozen conversations, stored through the same calls as real ones.

Nobody in it exists. Times are counted back from now, so that the lists always look recent. It has several platforms and
writing systems, a conversation that was compressed three times, a branch, a delegation, tool calls, and an undone
message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from gateway.config import Platform
from gateway.routes import keys
from gateway.routes.source import SessionEntry, SessionSource, local_time
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER

OWNER = "Ada"
"""The person at the demo; the model does not read what others wrote from their phones."""
TRIP = "Trip to Kyoto"
"""The conversation that her phone is in."""
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
_SCOPE = "sessions"
"""Where the gateway keeps its routes."""


class ToolUse(NamedTuple):
    """A tool call and its result, between two messages."""

    name: str
    arguments: dict[str, Any]
    result: str


Said = str | ToolUse
"""Messages in turn, the first of them the person's; tool calls come before the answer."""


class DemoChat(NamedTuple):
    """One conversation; `age` is how long ago it was last active."""

    source: str
    title: str
    age: float
    said: tuple[Said, ...]
    person: str = ""
    ended: str = ""
    archived: bool = False


def messages_of(said: tuple[Said, ...]) -> list[dict[str, Any]]:
    """Return the rows of a conversation."""
    rows: list[dict[str, Any]] = []
    role = "user"
    for one in said:
        if isinstance(one, str):
            rows.append({"role": role, "content": one})
            role = "assistant" if role == "user" else "user"
            continue
        call_id = f"call_{one.name}"
        function = {"name": one.name, "arguments": json.dumps(one.arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        rows.append({"role": "assistant", "content": None, "tool_calls": [call]})
        rows.append({"role": "tool", "content": one.result, "tool_name": one.name, "tool_call_id": call_id})
    return rows


def build(database: Path, now: float, *, phone: int) -> None:
    """Fill a new database. `phone` is the owner's id in the fake Telegram: her chat there is the trip."""
    home = _Builder(database, now, phone)
    try:
        home.db.people.set_name(home.db.people.owner().id, OWNER)
        home.db.pairings.link(LOCAL_OWNER, platform="telegram", native_id=str(phone))
        trip = _plan_kyoto(home)
        for chat in CHATS:
            session_id = home.open(chat.source, chat.title, age=chat.age + HOUR / 2, person=chat.person)
            home.say(session_id, *chat.said, age=chat.age)
            if chat.ended:
                home.db.ledger.end(session_id, chat.ended)
            home.db.set_session_archived(session_id, chat.archived)
        home.lead(trip, age=2 * MINUTE)
    finally:
        home.db.close()


def phone_chat(phone: int) -> SessionSource:
    """Return Ada's chat with the bot, which terminal and phone share."""
    chat = str(phone)
    return SessionSource(Platform.TELEGRAM, chat, chat_type="dm", user_id=chat, user_name=OWNER)


class _Builder:
    """A store whose clock shows the time of the message being stored."""

    def __init__(self, database: Path, now: float, phone: int) -> None:
        self._now = now
        self._phone = str(phone)
        self._at = now
        # A demo home need not survive a power cut, so it does not wait for the disk.
        self.db = SessionDB(database, clock=lambda: self._at, synchronous="NORMAL")

    def open(self, source: str, title: str, *, age: float, person: str = "") -> str:
        """Open a conversation; with `person` it comes from a chat and has a route."""
        self.at(age)
        chat = self._phone if person == OWNER else person.lower()
        route = f"agent:main:{source}:dm:{chat}" if person else None
        fields = {"display_name": person, "user_id": chat, "chat_type": "dm"} if person else {}
        owner = LOCAL_OWNER if person in (OWNER, "") else None
        session_id = self.db.ledger.open(source=source, route=route, owner=owner, fields=fields).session_id
        self.db.set_session_title(session_id, title)
        return session_id

    def say(self, session_id: str, *said: Said, age: float, pace: float = 20.0) -> list[int]:
        """Store messages in one commit, `pace` seconds apart, the last of them `age` seconds ago."""
        rows = messages_of(said)
        first = self._now - age - pace * (len(rows) - 1)
        self.at(age)
        timed = [{**row, "timestamp": first + pace * place} for place, row in enumerate(rows)]
        return self.db.append_messages(session_id, timed)

    def compress(self, session_id: str, said: str, *, age: float) -> str:
        self.at(age)
        summary = f"[Summary of the conversation so far, written by a machine] {said}"
        return self.db.ledger.rotate(session_id, messages_of((summary,))).session_id

    def lead(self, session_id: str, *, age: float) -> None:
        """Route the owner's chat to this session, with everything that a gateway stores of a route."""
        self.at(age)
        source, made = phone_chat(int(self._phone)), local_time(self._at)
        entry = SessionEntry(
            keys.build_session_key(source), session_id, created_at=made, updated_at=made, origin=source,
            display_name=OWNER, platform=source.platform,
        )  # fmt: skip
        self.db.ledger.switch(entry.session_key, session_id, scope=_SCOPE, entry=entry.to_dict())

    def at(self, age: float) -> None:
        self._at = self._now - age


def _plan_kyoto(home: _Builder) -> str:
    """Store six days of planning: four segments, a delegation, a branch; return the newest segment."""
    first = home.open("telegram", TRIP, age=6 * DAY + 1, person=OWNER)
    home.say(
        first,
        "Plan a week in Kyoto for two, early spring. We like gardens, quiet streets and good noodles.",
        "Late March has plum and early cherry blossom. Flights first, or where to stay?",
        "Where to stay. A small ryokan, not too far from the river.",
        ToolUse("search_web", {"query": "京都 旅館 鴨川 静か"}, "6 results: 鴨川のほとりの小さな旅館 · 京都の町家 · …"),
        "Three near the Kamo river. The smallest ryokan, Yanagi, has four rooms and a garden.",
        "Yanagi sounds right. I am allergic to nuts, please note that for dinners.",
        "Noted: no nuts. I will ask Yanagi before anything is booked.",
        age=5 * DAY + 22 * HOUR,
    )
    second = home.compress(
        first, "A week in Kyoto in late March, two people, preferably at Yanagi. Ada: nut allergy.", age=4 * DAY + 1
    )
    home.say(
        second,
        "They answered: 「三月二十四日から七泊、お部屋をご用意できます。ナッツは使いません。」 What does it say?",
        "A room for seven nights from 24 March, and they cook without nuts.",
        "Book it. And find us a noodle place for the first evening.",
        ToolUse("send_mail", {"to": "yanagi@example.jp", "subject": "24 March, seven nights"}, "sent, message 7741"),
        "The booking is sent. I have put somebody on the noodles.",
        age=3 * DAY + 20 * HOUR,
    )
    _delegate_noodles(home, second)
    third = home.compress(
        second, "Kyoto, 24–31 March, Yanagi booked (message 7741). First evening: Omen, no nuts.", age=2 * DAY + 1
    )
    home.say(
        third,
        "How do we get from Kansai airport to Yanagi with two suitcases?",
        "Take the Haruka express to 京都駅 (75 min), then a taxi, 10 minutes. No stairs on the way. 🚄",
        age=DAY + 20 * HOUR,
    )
    _branch_winter(home, third)
    fourth = home.compress(third, "Kyoto, 24–31 March, Yanagi booked, Haruka and taxi, Omen.", age=5 * HOUR + 1)
    _change_of_mind(home, fourth)
    return fourth


def _delegate_noodles(home: _Builder, parent: str) -> None:
    home.at(3 * DAY + 19 * HOUR)
    worker = home.db.create_session(
        f"{parent[:15]}_de1e6a7e", "telegram", parent_session_id=parent, model_config={"_delegate_from": parent}
    )
    home.say(
        worker,
        "Find a noodle restaurant in Kyoto for two, safe for a nut allergy.",
        ToolUse("search_web", {"query": "京都 うどん 銀閣寺 おすすめ"}, "Omen (おめん), near Ginkaku-ji, open 11–21"),
        "Omen near Ginkaku-ji. No nuts in broth or toppings; they were asked.",
        age=3 * DAY + 18 * HOUR,
    )
    home.db.end_session(worker, "done")


def _branch_winter(home: _Builder, origin: str) -> None:
    home.at(DAY + 19 * HOUR)
    branch = home.db.ledger.branch(origin, title="Kyoto in winter").session_id
    home.say(
        branch,
        "What if we went in January? Same ryokan.",
        "Colder, emptier, a third cheaper, and with luck snow on the Golden Pavilion. ❄️",
        age=DAY + 18 * HOUR,
    )


def _change_of_mind(home: _Builder, session_id: str) -> None:
    """Store a message that was typed into the wrong chat and undone."""
    sent = home.say(
        session_id,
        "Is 京都御所 open on the 25th?",
        "Yes, from 9:00 to 16:30; it closes on Mondays only.",
        "Cancel everything, I quit!!",
        age=HOUR,
    )
    home.db.rewind_to_message(session_id, sent[-1])
    home.say(
        session_id,
        "Sorry, wrong chat. When is 哲学の道 quiet?",
        "Before nine in the morning. Omen opens at eleven, five minutes away. 🍜",
        age=2 * MINUTE + 5,
    )


# fmt: off
CHATS = (
    DemoChat("api_server", "Invoice 2231", HOUR + MINUTE, (
        "Check invoice 2231 against order 889 and tell me the difference.",
        ToolUse("read_file", {"path": "invoices/2231.pdf"}, "total 1,284.50 EUR, 14 positions"),
        "The invoice is 84.50 EUR above the order: express delivery, which nobody ordered.",
    )),
    DemoChat("telegram", "猫の名前", 7 * HOUR + MINUTE, (
        "子猫をもらいました。白くて、とても小さいです。名前を考えてください。",
        "「ゆき」「もち」「こはる」はどうでしょう。白い子なら「もち」がかわいいと思います。🐱",
        "もちにします！",
    ), person="Yuki"),
    DemoChat("telegram", "Geburtstag bei Oma", DAY + HOUR, (
        "Oma wird achtzig. Was schenken wir, und wer bringt den Käsekuchen mit?",
        "Ein Fotobuch über Grönland, wo sie immer hinwollte. Der Käsekuchen: Jürgen, wie jedes Jahr.",
    ), person="Jonas"),
    DemoChat("cli", "Parser refactor", 2 * DAY + HOUR, (
        "The parser copies every token twice. Where?",
        ToolUse("search_files", {"pattern": "copy", "path": "src/parser"}, "lexer.py:88: return copy(token)"),
        "lexer.py line 88: tokens are frozen, so the copy can go. A third less time in the benchmark.",
        "Do it, and run the tests.",
        ToolUse("run", {"command": "make test"}, "412 passed in 8.21s"),
        "Done: 412 tests pass.",
    ), ended="cli_close"),
    DemoChat("discord", "Ryokan or hotel?", 3 * DAY + HOUR, (
        "First time in Japan: ryokan or hotel?",
        "Two nights in a ryokan for the bath and the breakfast, a hotel near a station for the rest.",
    ), person="Sam"),
    DemoChat("cron", "Nightly backup", 4 * DAY + HOUR, (
        "Verify last night's backup.",
        ToolUse("run", {"command": "hermes backup verify"}, "integrity ok, 12 conversations"),
        "Verified ✅",
    ), ended="cron_complete"),
    DemoChat("telegram", "北京的天气", 5 * DAY + HOUR, (
        "下周去北京出差，需要带厚外套吗？",
        "需要。北京下周早晚只有五度左右，白天十二度，风比较大。",
        "从京都带的那件够不够？",
        "够了，里面再加一件毛衣就好。",
    ), person="Lin"),
    DemoChat("cli", "Garden plan 🌱", 9 * DAY + HOUR, (
        "What can I sow in November in a cold frame?",
        "Broad beans, lamb's lettuce and winter purslane. 🥬 Cover them when it freezes.",
    ), ended="cli_close"),
    DemoChat("api_server", "Translate the manual", 13 * DAY + HOUR, (
        "Translate chapter 3 of the pump manual into French.",
        "Chapitre 3 : mise en service. Avant le premier démarrage, fermez la vanne d'aspiration…",
    )),
    DemoChat("telegram", "Bike repair", 40 * DAY + HOUR, (
        "The chain jumps on the two smallest sprockets only.",
        "Those two are worn. A new cassette and chain together, or the new chain will jump as well.",
    ), person="Ada", archived=True),
)
# fmt: on
