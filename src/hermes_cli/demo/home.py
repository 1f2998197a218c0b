"""The made-up home of `hermes demo`: a dozen conversations, built through the same doors as real ones.

Nobody in it exists. Times are counted back from now, so that the lists always look lived in. What is here on purpose:
several sources and scripts, a conversation that was compressed three times, a branch, a delegation, tool calls, and a
message that was taken back. The short conversations are in `demo_chats`.
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
"""Whoever sits at the demo; what others wrote to it from their phones is not hers to read through the model."""
TRIP = "Trip to Kyoto"
"""The conversation that her phone is in."""

_SCOPE = "sessions"
"""Where the gateway keeps its routes."""


def build(database: Path, now: float, *, phone: int) -> None:
    """Fill a fresh database. `phone` is the owner's number in the chat app: her chat there leads to the trip."""
    home = _Builder(database, now, phone)
    try:
        home.db.people.set_name(home.db.people.owner().id, OWNER)
        home.db.pairings.link(LOCAL_OWNER, platform="telegram", native_id=str(phone))
        trip = _plan_kyoto(home)
        for chat in CHATS:
            session_id = home.open(chat.source, chat.title, age=chat.age + HOUR / 2, person=chat.person)
            home.say(session_id, *chat.turns, age=chat.age)
            if chat.ended:
                home.db.ledger.end(session_id, chat.ended)
            home.db.set_session_archived(session_id, chat.archived)
        home.lead(trip, age=2 * MINUTE)
    finally:
        home.db.close()


def phone_chat(phone: int) -> SessionSource:
    """Ada's chat with the bot: the place that desk and phone share."""
    chat = str(phone)
    return SessionSource(Platform.TELEGRAM, chat, chat_type="dm", user_id=chat, user_name=OWNER)


class _Builder:
    """A store whose clock stands at the moment being told."""

    def __init__(self, database: Path, now: float, phone: int) -> None:
        self._now = now
        self._phone = str(phone)
        self._at = now
        # Nobody would miss this home after a power cut, so it need not wait for the disk.
        self.db = SessionDB(database, clock=lambda: self._at, synchronous="NORMAL")

    def open(self, source: str, title: str, *, age: float, person: str = "") -> str:
        """A new conversation; one from a chat app has a route and a person behind it."""
        self.at(age)
        chat = self._phone if person == OWNER else person.lower()
        route = f"agent:main:{source}:dm:{chat}" if person else None
        fields = {"display_name": person, "user_id": chat, "chat_type": "dm"} if person else {}
        owner = LOCAL_OWNER if person in (OWNER, "") else None
        session_id = self.db.ledger.open(source=source, route=route, owner=owner, fields=fields).session_id
        self.db.set_session_title(session_id, title)
        return session_id

    def say(self, session_id: str, *turns: Turn, age: float, pace: float = 20.0) -> list[int]:
        """Several messages in one commit, `pace` seconds apart, the last of them `age` seconds ago."""
        first = self._now - age - pace * (len(turns) - 1)
        rows = [{**turn, "timestamp": first + pace * place} for place, turn in enumerate(turns)]
        self.at(age)
        return self.db.append_messages(session_id, rows)

    def compress(self, session_id: str, said: str, *, age: float) -> str:
        self.at(age)
        return self.db.ledger.rotate(session_id, [summary(said)]).session_id

    def lead(self, session_id: str, *, age: float) -> None:
        """The owner's chat leads there, with all that a gateway writes down of a place."""
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
    """Six days of planning: four segments, a delegation in the second, a branch off the third. Its newest segment."""
    first = home.open("telegram", TRIP, age=6 * DAY + 1, person=OWNER)
    home.say(
        first,
        user("Plan a week in Kyoto for two, early spring. We like gardens, quiet streets and good noodles."),
        assistant("Late March has plum and early cherry blossom. Flights first, or where to stay?"),
        user("Where to stay. A small ryokan, not too far from the river."),
        *tool("search_web", {"query": "京都 旅館 鴨川 静か"}, "6 results: 鴨川のほとりの小さな旅館 · 京都の町家 · …"),
        assistant("Three near the Kamo river. The smallest ryokan, Yanagi, has four rooms and a garden."),
        user("Yanagi sounds right. I am allergic to nuts, please note that for dinners."),
        assistant("Noted: no nuts. I will ask Yanagi before anything is booked."),
        age=5 * DAY + 22 * HOUR,
    )
    second = home.compress(
        first, "A week in Kyoto in late March, two people, preferably at Yanagi. Ada: nut allergy.", age=4 * DAY + 1
    )
    home.say(
        second,
        user("They answered: 「三月二十四日から七泊、お部屋をご用意できます。ナッツは使いません。」 What does it say?"),
        assistant("A room for seven nights from 24 March, and they cook without nuts."),
        user("Book it. And find us a noodle place for the first evening."),
        *tool("send_mail", {"to": "yanagi@example.jp", "subject": "24 March, seven nights"}, "sent, message 7741"),
        assistant("The booking is sent. I have put somebody on the noodles."),
        age=3 * DAY + 20 * HOUR,
    )
    _delegate_noodles(home, second)
    third = home.compress(
        second, "Kyoto, 24–31 March, Yanagi booked (message 7741). First evening: Omen, no nuts.", age=2 * DAY + 1
    )
    home.say(
        third,
        user("How do we get from Kansai airport to Yanagi with two suitcases?"),
        assistant("Take the Haruka express to 京都駅 (75 min), then a taxi, 10 minutes. No stairs on the way. 🚄"),
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
        user("Find a noodle restaurant in Kyoto for two, safe for a nut allergy."),
        *tool("search_web", {"query": "京都 うどん 銀閣寺 おすすめ"}, "Omen (おめん), near Ginkaku-ji, open 11–21"),
        assistant("Omen near Ginkaku-ji. No nuts in broth or toppings; they were asked."),
        age=3 * DAY + 18 * HOUR,
    )
    home.db.end_session(worker, "done")


def _branch_winter(home: _Builder, origin: str) -> None:
    home.at(DAY + 19 * HOUR)
    branch = home.db.ledger.branch(origin, title="Kyoto in winter").session_id
    home.say(
        branch,
        user("What if we went in January? Same ryokan."),
        assistant("Colder, emptier, a third cheaper, and with luck snow on the Golden Pavilion. ❄️"),
        age=DAY + 18 * HOUR,
    )


def _change_of_mind(home: _Builder, session_id: str) -> None:
    """Something typed into the wrong chat, and taken back."""
    sent = home.say(
        session_id,
        user("Is 京都御所 open on the 25th?"),
        assistant("Yes, from 9:00 to 16:30; it closes on Mondays only."),
        user("Cancel everything, I quit!!"),
        age=HOUR,
    )
    home.db.rewind_to_message(session_id, sent[-1])
    home.say(
        session_id,
        user("Sorry, wrong chat. When is 哲学の道 quiet?"),
        assistant("Before nine in the morning. Omen opens at eleven, five minutes away. 🍜"),
        age=2 * MINUTE + 5,
    )


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
