"""What stands in a chat of one outbox item, and what a crash leaves us to know about it.

An item's note (`OutboxItem.draft`) is written before a message is sent whose loss we could not tell from its arrival,
and says which one: `under_way`. Edits need no note, because an edit made twice is an edit. So after a crash the note
tells what may be done without a second copy of anything:

- no note: the claim itself said that the first message is under way, and nobody knows whether it arrived;
- a note with nothing under way: only edits were left to do, they are done again;
- `live` and something under way: it was the beginning of an answer that was still being made. The answer itself was
  never sent, so it is, with a mark that an unfinished copy may stand above it;
- something under way that was not live: a message of the reply itself, and nobody knows.

`again` is set when a person had an unknown item sent once more: the message says so. A delivery that began with such a
mark keeps it in `marked` until it is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.turns.outbox import OutboxItem

SENT_AGAIN = "(sent again; an earlier copy may have arrived)"
UNFINISHED_ABOVE = "(an unfinished copy of this may stand above)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    ids: Sequence[str] = ()
    """The platform's ids of our messages, in order."""
    shown: Sequence[str] = ()
    """What they say, as far as this process knows."""
    under_way: int | None = None
    """The number of a message that may or may not have arrived."""
    live: bool = False
    """The messages show an answer that was still being made, so they have to be brought to their final text."""
    again: bool = False
    marked: str = ""
    """The mark that the messages which stand there were sent with."""
    noted: bool = False
    """The item's row has a note."""

    @classmethod
    def of(cls, item: OutboxItem) -> Standing:
        """What the row knows."""
        note = item.draft
        if note is None:
            return cls(ids=item.platform_ids)
        under_way = note.get("under_way")
        return cls(
            ids=item.platform_ids,
            under_way=under_way if isinstance(under_way, int) else None,
            live=bool(note.get("live")),
            again=bool(note.get("again")),
            marked=str(note.get("marked") or ""),
            noted=True,
        )

    @property
    def mark(self) -> str:
        """What the message has to say before its text; empty in nearly all cases."""
        if self.again:
            return SENT_AGAIN
        return UNFINISHED_ABOVE if self.live and self.under_way is not None else self.marked

    @property
    def outdated(self) -> bool:
        """The messages that stand there do not say what the item says: they show a draft, or lack its mark."""
        return self.live or self.mark != self.marked


def note(*, under_way: int | None, live: bool = False, marked: str = "") -> Mapping[str, Any]:
    """As it is kept with the item."""
    return {"under_way": under_way, "live": live, "marked": marked}


def can_go_on(item: OutboxItem) -> bool:
    """Whether an item whose sender died can be finished without a second copy of a reply."""
    if item.draft is None:
        return False
    standing = Standing.of(item)
    return standing.live or standing.under_way is None
