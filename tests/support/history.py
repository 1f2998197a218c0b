"""A checker of what a gateway promised: it reads the fake platform and the store, and says which promise was broken.

    history = History.read(db, fake, said, effects=lines, refused=model.rejections)
    assert history.violations() == []

People write texts that carry a label (`#07-012`: chat 7, message 12), the model answers with `Answer to #07-012`, and a
tool leaves the label behind in a file. From the labels it can be told, whatever happened in between, what became of
each message: stored once, ended once, answered once, in order, nothing done twice. The rules are functions in `RULES`
and know nothing of how the gateway works; they hold of any run, with any faults, once nothing is under way any more.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gateway.outbound.send_item import REPEATED
from gateway.platforms.base import SHORT
from hermes_testing.scripted.steps import ScriptedRequest, text_of
from hermes_testing.telegram.answers import Json
from hermes_testing.telegram.client import FakePerson, SeenMessage, TelegramControl

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.turns.inbox import InboxRow
    from hermes_state.turns.outbox import OutboxItem
    from hermes_state.turns.turns import Turn

LABEL = re.compile(r"#\d+-\d+")
ANSWER = re.compile(r"Answer to (#\d+-\d+)")
OUTCOMES = ("answered", "error", "silent", "missed", "dropped", "superseded")
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Labelled:
    """Something a person wrote."""

    label: str
    person: FakePerson
    message: int

    @property
    def chat(self) -> str:
        return str(self.person.id)


@dataclass(frozen=True, slots=True)
class History:
    """Everything there is to know about a run that is over."""

    said: Sequence[Labelled]
    chats: Mapping[str, Sequence[SeenMessage]]
    """What stands in each chat from the bot, oldest first."""
    updates: Sequence[Json]
    inbox: Sequence[InboxRow]
    outbox: Sequence[OutboxItem]
    turns: Mapping[str, Turn]
    transcripts: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows of each chat's conversation, oldest first."""
    effects: Sequence[str]
    """Labels that tools left behind."""
    refused: Sequence[str]
    """What the strict model found wrong with our requests."""
    breaks: int
    """Times a prompt did not begin with the bytes it had begun with before."""

    @classmethod
    def read(
        cls,
        db: SessionDB,
        fake: TelegramControl,
        said: Sequence[Labelled],
        *,
        effects: Iterable[str] = (),
        refused: Iterable[ScriptedRequest] = (),
    ) -> History:
        people = {one.chat: one.person for one in said}
        turns = {turn.id: turn for turn in db.turns.list(limit=_ALL)}
        inbox = tuple(reversed(db.inbox.list(limit=_ALL)))
        talks = {
            row.chat_id: turns[row.turn_id].conversation_id for row in inbox if row.turn_id and row.turn_id in turns
        }
        return cls(
            said=said,
            chats={chat: person.replies() for chat, person in people.items()},
            updates=fake.updates(),
            inbox=inbox,
            outbox=tuple(reversed(db.outbox.list(limit=_ALL))),
            turns={str(name): turn for name, turn in turns.items()},
            transcripts={
                chat: db.get_messages_as_conversation(db.get_compression_tip(talk), include_ancestors=True)
                for chat, talk in talks.items()
            },
            effects=tuple(effects),
            refused=tuple(str(one.rejected) for one in refused),
            breaks=db.prefixes.break_count(),
        )

    def violations(self) -> list[str]:
        """One line for each promise that was broken; empty: all were kept."""
        return [f"{name}: {what}" for name, rule in RULES.items() for what in rule(self)]

    def notifications(self, chat: str) -> list[str]:
        """What the phone of a chat showed: the text that each message was sent with."""
        return [(seen.versions or [seen.text])[0] for seen in self.chats[chat]]

    def strays(self) -> set[tuple[str, int]]:
        """Beginnings of answers that stand in a chat beside the answer: their sending was not answered."""
        ours = {(item.chat_id, number) for item in self.outbox for number in item.platform_ids}
        return {
            (chat, seen.id)
            for chat, all_seen in self.chats.items()
            for seen in all_seen
            if (chat, str(seen.id)) not in ours and ANSWER.search(seen.text) and not _marked(seen.text)
        }

    def summary(self) -> str:
        """What there was, in a few lines."""
        outcomes = Counter(row.state for row in self.inbox)
        items = Counter(item.state for item in self.outbox)
        again = sum(turn.attempt > 1 for turn in self.turns.values())
        copies = sum(_marked(seen.text) for chat in self.chats.values() for seen in chat)
        delivered = sum(update["delivered"] for update in self.updates)
        handed = f"{len(self.updates)} updates handed out {delivered} times"
        ran = f"tools ran {len(self.effects)} times; prefix breaks {self.breaks}"
        broken = Counter(line.partition(":")[0] for line in self.violations())
        missing, doubled = broken["stored"] + broken["ended"] + broken["delivered"], broken["once"]
        return "\n".join(
            (
                f"said {len(self.said)} in {len(self.chats)} chats; {handed}",
                f"inbox   {_counts(outcomes)}; answers missing {missing}, doubled without a mark {doubled}",
                f"outbox  {_counts(items)}; {copies} repeated with a mark, {len(self.strays())} stray beginnings",
                f"turns   {len(self.turns)}, {again} taken up again; {ran}",
                *(f"        {count} {state}: {reason}" for (state, reason), count in self.reasons().most_common()),
            )
        )

    def reasons(self) -> Counter[tuple[str, str]]:
        """Why rows ended without an answer: the state of the turn, or of a row without one, and the reason."""
        ended = [row for row in self.inbox if row.state in ("error", "dropped")]
        turns = [(row, self.turns.get(row.turn_id or "")) for row in ended]
        return Counter(
            (row.state, row.reason or "") if turn is None
            else (f"{row.state}, turn {turn.state} at attempt {turn.attempt}", turn.reason or row.reason or "")
            for row, turn in turns
        )  # fmt: skip


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items())) or "nothing"


# -- the rules --------------------------------------------------------------------------------------------------------


def stored(history: History) -> Iterator[str]:
    """What the platform was told we have is stored, once."""
    rows = Counter((row.chat_id, row.message_id) for row in history.inbox if not row.version)
    acknowledged = {(str(one["chat_id"]), str(one["message_id"])) for one in history.updates if one["acknowledged_at"]}
    for one in history.said:
        count = rows[one.chat, str(one.message)]
        if count > 1:
            yield f"{one.label} is stored {count} times"
        elif not count:
            told = "was acknowledged and is" if (one.chat, str(one.message)) in acknowledged else "is"
            yield f"{one.label} {told} not stored"


def ended(history: History) -> Iterator[str]:
    """Every message has exactly one outcome, and every outcome a trace of its own."""
    owed = {str(item.turn_id) for item in history.outbox if item.turn_id is not None}
    keys = {item.dedup_key for item in history.outbox}
    for row in history.inbox:
        label = _label(row)
        if row.state == "refused":
            yield f"{label} was refused: {row.reason}"
        elif row.state not in OUTCOMES or row.ended_at is None:
            yield f"{label} has no outcome: it is {row.state}"
        elif row.state == "answered" and str(row.turn_id) not in owed and f"command:{row.id}" not in keys:
            yield f"{label} counts as answered and nothing was owed for it"
        elif row.state == "error" and str(row.turn_id) not in owed and f"answer:inbox:{row.id}" not in keys:
            yield f"{label} failed ({row.reason}) and nobody was told"
        elif row.state in ("silent", "dropped") and not row.reason:
            yield f"{label} is {row.state} and nobody can look up why"
    for name, turn in history.turns.items():
        if turn.state == "running":
            yield f"the turn {name} never ended"


def delivered(history: History) -> Iterator[str]:
    """What was owed stands in its chat as it is stored."""
    standing = {(chat, str(seen.id)): seen for chat, all_seen in history.chats.items() for seen in all_seen}
    for item in history.outbox:
        text = str(item.payload.get("text") or "")
        if item.state in ("pending", "sending", "draft"):
            yield f"the item {item.dedup_key} is still {item.state}"
        elif item.state in ("unknown", "failed"):
            yield f"the item {item.dedup_key} is missing: it is {item.state} ({item.error})"
        elif item.state == "sent":
            seen = [standing.get((item.chat_id, number)) for number in item.platform_ids]
            shown = "".join("" if one is None else one.text.removeprefix(REPEATED) for one in seen)
            if not seen or None in seen:
                yield f"the item {item.dedup_key} was sent and does not stand in its chat"
            elif shown.split() != text.split():
                yield f"the item {item.dedup_key} shows {shown[:60]!r} and is {text[:60]!r}"


def once(history: History) -> Iterator[str]:
    """No reply stands in a chat twice, unless one says so. The first sentence of a long one may."""
    owed: dict[str, list[str]] = defaultdict(list)
    for item in history.outbox:
        if match := ANSWER.search(text := str(item.payload.get("text"))):
            owed[match[1]].append(text)
    for label, texts in owed.items():
        if len(texts) > 1:
            yield f"{label} was answered {len(texts)} times"
    strays = history.strays()
    for chat, all_seen in history.chats.items():
        found = Counter(
            match[1]
            for seen in all_seen
            if not _marked(seen.text)
            and (match := ANSWER.search(seen.text))
            # A beginning of a long answer is a stray, which is counted; of a short one it is a copy.
            and not ((chat, seen.id) in strays and len(seen.text) <= SHORT < len(owed.get(match[1], [""])[0]))
        )
        for label, count in found.items():
            if count > 1:
                yield f"the answer to {label} stands {count} times in the chat {chat}, without a mark"


def ordered(history: History) -> Iterator[str]:
    """In each chat: stored in the order in which it was written, answered in the order in which it was stored."""
    numbers = {(one.chat, str(one.message)): _number(one.label) for one in history.said}
    rows: dict[str, list[int]] = defaultdict(list)
    for row in history.inbox:
        if (number := numbers.get((row.chat_id, row.message_id))) is not None and not row.version:
            rows[row.chat_id].append(number)
    for chat, all_seen in history.chats.items():
        yield from _rising(rows[chat], f"the chat {chat} was stored")
        answers = [_number(match[1]) for seen in all_seen if (match := ANSWER.search(seen.text))]
        yield from _rising(list(dict.fromkeys(answers)), f"the chat {chat} was answered")


def transcribed(history: History) -> Iterator[str]:
    """The transcript holds each answered message once, in order, and each answer as it was owed."""
    heard: dict[str, set[str]] = {}
    for chat, rows in history.transcripts.items():
        users, tools = (
            [found for row in rows if row["role"] == role for found in LABEL.findall(text_of(row["content"]))]
            for role in ("user", "tool")
        )
        heard[chat] = {*users, *tools}
        for label, count in Counter(users).items():
            if count > 1:
                yield f"{label} stands {count} times in the transcript"
        yield from _rising(list(dict.fromkeys(map(_number, users))), f"the transcript of the chat {chat} is")
    for row in history.inbox:
        if row.state == "answered" and row.turn_id and (label := _label(row)) not in heard.get(row.chat_id, ()):
            yield f"{label} was answered and is not in the transcript"


def acted(history: History) -> Iterator[str]:
    """No tool call was made twice."""
    for label, count in Counter(history.effects).items():
        if count > 1:
            yield f"the tool of {label} ran {count} times"


def valid(history: History) -> Iterator[str]:
    """Every request was one that a strict provider takes, and began as the one before it."""
    for why in history.refused:
        yield f"the model refused a request: {why}"
    if history.breaks:
        yield f"{history.breaks} prompts did not begin with the bytes of those before"


Rule = Callable[[History], Iterator[str]]
RULES: Mapping[str, Rule] = {
    rule.__name__: rule for rule in (stored, ended, delivered, once, ordered, transcribed, acted, valid)
}


def _label(row: InboxRow) -> str:
    found = LABEL.search(str((row.payload or {}).get("text") or ""))
    return found[0] if found else f"message {row.message_id} of the chat {row.chat_id}"


def _number(label: str) -> int:
    return int(label.rpartition("-")[2])


def _rising(numbers: list[int], what: str) -> Iterator[str]:
    for before, after in pairwise(numbers):
        if after < before:
            yield f"{what} out of order: {before} before {after}"


def _marked(text: str) -> bool:
    return text.startswith(REPEATED)
