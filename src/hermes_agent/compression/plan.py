"""The plan of a compression: which rows stay and which a summary replaces. A pure function of the rows.

    head      the first messages, at the first compression only
    middle    the messages that the summary replaces
    tail      the newest messages, by tokens, with a minimum

Rows that belong together (a step's calls and their results) are one unit and are kept or left out together. The last
message of the person and the last of the assistant are always kept; if a long run of tool calls has pushed them out of
the tail, they come right before it. Old tool outputs are replaced by placeholders first.

A plan guarantees: with any summary that fits into `room`, the result is smaller than before and below the target. If
no such plan exists, there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from hermes_agent.compression import summary
from hermes_agent.compression.policy import ContextWindow
from hermes_agent.messages import calls_of, is_image, text_of, tokens_of
from hermes_agent.models.base import Message
from hermes_agent.prompt import tokens
from hermes_agent.text import shortened
from hermes_state.conversations.origins import inherited

_LEAST_TAIL = 3
_WANTED_TAIL = 8
_WORTH_PRUNING = 400
"""A placeholder for a shorter tool output, in characters, saves nothing."""
_LEAST_SUMMARY = summary.LABEL + summary.END + "x" * 240
_SHORTENED = 1_200


@dataclass(frozen=True, slots=True)
class CompressionPlan:
    head: tuple[Message, ...]
    middle: tuple[Message, ...]
    """Empty when shortening old outputs is enough."""
    tail: tuple[Message, ...]
    before: int
    """Tokens of all rows."""
    room: int
    """The most tokens that the summary's message may have."""

    @property
    def earlier(self) -> list[str]:
        """The texts of earlier summaries in the middle."""
        return [body for row in self.middle if (body := summary.body(row))]

    @property
    def new(self) -> list[Message]:
        """The rows of the middle that no summary has covered yet."""
        return [row for row in self.middle if summary.body(row) is None]

    def applied(self, text: str) -> list[Message]:
        """The rows of the next segment, with this summary instead of the middle."""
        if not self.middle:
            return [*self.head, *self.tail]
        before = str(self.head[-1]["role"]) if self.head else None
        after = str(self.tail[0]["role"]) if self.tail else None
        user_kept = any(row["role"] == "user" for row in (*self.head, *self.tail))
        role = summary.role_between(before, after, user_kept=user_kept)
        made = {**summary.message(text, role), "origin": inherited(row.get("origin") for row in self.middle)}
        return [*self.head, made, *self.tail]


class _KeepAmount(NamedTuple):
    """How much to keep in one attempt at a plan; later attempts keep less."""

    head: int
    least_tail: int
    shorten: bool = False


def plan_for(
    rows: Sequence[Message], window: ContextWindow, *, force: bool = False, must: bool = False
) -> CompressionPlan | None:
    """A plan to shorten these rows; None if that is impossible or not worth it."""
    if not rows:
        return None
    sizes = [tokens_of(row, window.model) for row in rows]
    before = sum(sizes)
    goal = min(window.target, before * 6 // 10) if must else window.target
    allowance = min(window.tail_budget * 3 // 2, goal // 2)
    if force or must:
        allowance = min(allowance, before // 3)
    holds = _keep_amounts(rows, window, force=force, must=must)
    if len(rows) <= holds[0].head + 4 and not must:
        return None
    for hold in holds:
        split = _split(rows, sizes, hold, allowance)
        found = _guaranteed_plan(rows, split, hold, window, before, goal)
        if found is not None:
            return found
    return None


def _keep_amounts(rows: Sequence[Message], window: ContextWindow, *, force: bool, must: bool) -> list[_KeepAmount]:
    first = not any(summary.body(row) is not None for row in rows)
    head = window.settings.protect_first_n if first else 0
    least = _LEAST_TAIL if force else max(min(window.settings.protect_last_n, _WANTED_TAIL), _LEAST_TAIL)
    holds = [_KeepAmount(head, least), _KeepAmount(0, least), _KeepAmount(0, _LEAST_TAIL)]
    if must:
        holds.append(_KeepAmount(0, _LEAST_TAIL, shorten=True))
    return list(dict.fromkeys(holds))


# -- units ---------------------------------------------------------------------------------------------------------


def units(rows: Sequence[Message]) -> list[range]:
    """The rows as units that are kept or left out as a whole: a call stays with its result."""
    reach = list(range(len(rows)))
    asked: dict[str, int] = {}
    for place, row in enumerate(rows):
        if row["role"] == "assistant":
            asked |= {call.id: place for call in calls_of(row) if call.id}
        elif row["role"] == "tool" and place:
            reach[place - 1] = place  # a result never begins a unit, whichever call it answers
            origin = asked.pop(str(row.get("tool_call_id") or ""), None)
            if origin is not None:
                reach[origin] = place
    pieces: list[range] = []
    start = 0
    for place, furthest in enumerate(accumulate(reach, max)):
        if furthest == place:
            pieces.append(range(start, place + 1))
            start = place + 1
    return pieces


class _Split(NamedTuple):
    head: list[int]
    middle: list[int]
    pinned: list[int]
    tail: list[int]
    newest: set[int]
    """The rows of the last unit, which the model may not have seen yet."""


def _split(rows: Sequence[Message], sizes: Sequence[int], hold: _KeepAmount, allowance: int) -> _Split:
    pieces = units(rows)
    begin = 0
    while pieces[begin].start < hold.head and len(rows) - pieces[begin].stop >= hold.least_tail:
        begin += 1
    start = _tail_start(rows, sizes, pieces, begin, hold.least_tail, allowance)
    last = {_last(rows, "user"), _last(rows, "assistant")}
    pinned = [piece for piece in pieces[begin:start] if any(i in piece for i in last)]
    middle = [piece for piece in pieces[begin:start] if piece not in pinned]
    return _Split(
        head=_flat(pieces[:begin]), middle=_flat(middle), pinned=_flat(pinned), tail=_flat(pieces[start:]),
        newest=set(pieces[-1]),
    )  # fmt: skip


def _last(rows: Sequence[Message], role: str) -> int:
    """The index of the newest written message of this role; -1 if there is none."""
    found = (i for i in reversed(range(len(rows))) if rows[i]["role"] == role and summary.body(rows[i]) is None)
    return next(found, -1)


def _tail_start(
    rows: Sequence[Message], sizes: Sequence[int], pieces: Sequence[range], begin: int, least: int, allowance: int
) -> int:
    """The first unit of the tail."""
    start, count, weight = len(pieces), 0, 0
    while start > begin:
        piece = pieces[start - 1]
        size = sum(sizes[i] for i in piece)
        if count >= least and weight + size > allowance:
            break
        start, count, weight = start - 1, count + len(piece), weight + size
    if begin < start - 1 and start < len(pieces) and rows[pieces[start].start]["role"] == "user":
        # With the preceding answer the tail begins with the assistant, and the roles keep alternating.
        answer = pieces[start - 1]
        if rows[answer.start]["role"] == "assistant" and sum(sizes[i] for i in answer) <= allowance // 4:
            start -= 1
    return start


def _flat(pieces: Sequence[range]) -> list[int]:
    return [i for piece in pieces for i in piece]


# -- the guarantee -------------------------------------------------------------------------------------------------


def _guaranteed_plan(
    rows: Sequence[Message], split: _Split, hold: _KeepAmount, window: ContextWindow, before: int, goal: int
) -> CompressionPlan | None:
    middle = tuple(rows[i] for i in split.middle)
    needed = 0
    if middle:
        if all(summary.body(row) is not None for row in middle):
            return None  # summarising only a summary saves nothing
        needed = tokens.of_text(_LEAST_SUMMARY, window.model)
    head = [_pruned(rows[i]) for i in split.head]
    kept = sum(tokens_of(row, window.model) for row in head)
    places = [*split.pinned, *split.tail]
    tail = [dict(rows[i]) for i in places]
    weights = [tokens_of(row, window.model) for row in tail]
    kept += sum(weights)
    for shorten in (False, True) if hold.shorten else (False,):
        for n, place in enumerate(places):  # the oldest first
            if kept + needed <= goal:
                break
            if shorten == (place in split.newest):
                tail[n] = _shortened_row(rows[place]) if shorten else _pruned(rows[place])
                lighter = tokens_of(tail[n], window.model)
                kept, weights[n] = kept - weights[n] + lighter, lighter
    room = min(goal - kept, before - kept - 1)
    if room < needed or (not middle and kept >= before):
        return None
    return CompressionPlan(tuple(head), middle, tuple(tail), before, room)


def _pruned(row: Message) -> dict[str, Any]:
    """The row with placeholders for a long tool output and for images."""
    length = len(text_of(row.get("content")))
    if _is_output(row) and length > _WORTH_PRUNING:
        note = f"[Old tool output left out to save room: {length:,} characters]"
        return {**row, "content": note, "api_content": None}
    return _without_images(row)


def _shortened_row(row: Message) -> dict[str, Any]:
    """The row with only the beginning and end of its output, without images; the last resort for the newest outputs."""
    if not _is_output(row):
        return dict(row)
    text = text_of(row.get("content"))
    if len(text) <= _SHORTENED:
        return _without_images(row)
    return {**row, "content": shortened(text, _SHORTENED), "api_content": None}


def _is_output(row: Message) -> bool:
    """Whether it is a tool's output that may be shortened: the newest result of todo is the list itself."""
    return row["role"] == "tool" and row.get("tool_name") != "todo"


def _without_images(row: Message) -> dict[str, Any]:
    content = row.get("content")
    if not isinstance(content, list) or not any(map(is_image, content)):
        return dict(row)
    parts = [{"type": "text", "text": "[an image]"} if is_image(part) else part for part in content]
    return {**row, "content": parts}
