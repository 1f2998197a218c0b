"""The tree of a conversation, drawn: its segments downwards, what began in each of them to the right.

    ○ 20261109_071502_5b1f0c2a  12 messages · began 6 d ago · compressed 4 d ago
    ├─ branch  Kyoto in winter
    │  ● 20261112_090000_1d2e3f40  8 messages · active 3 d ago
    ● 20261111_080000_9a8b7c6d  14 messages · active 2 min ago

A filled circle is open, an empty one has ended. A reset is drawn as one line: its past is a list, not this tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_cli import output, text
from hermes_cli.finding import title_of

if TYPE_CHECKING:
    from hermes_state.conversations.lineage import Family, Member

_KINDS = {"branch": "branch", "delegate": "delegated", "reset": "reset to", "child": "child"}
_REASONS = {
    "compression": "compressed", "uncompressed": "set aside as its compression was undone", "session_reset": "reset",
    "session_switch": "left for another", "cli_close": "left", "tui_close": "left", "tui_shutdown": "left",
}  # fmt: skip


def ended(reason: str | None) -> str:
    """Why a segment is over, in a word for people; a reason of another program's is shown as it is."""
    if not reason:
        return "ended"
    return _REASONS.get(reason, f"ended ({reason})")


def tree(family: Family, *, asked: str, columns: int | None, now: float | None = None) -> str:
    """The whole drawing. `asked` is the segment the person named; it is pointed out when there are others."""
    root = family.root
    lines = [_title_line(root)]
    if root.kind != "new":
        lines.append(output.style(text.harmless(_origin(family)), "dim"))
    drawer = _Drawer(asked if asked != root.tip_id else "", columns, now)
    drawer.draw(root, "")
    lines += drawer.lines
    if family.cut:
        lines.append(output.style("… and more than 200 conversations in all; the rest is not drawn", "dim"))
    return "\n".join(lines)


def _title_line(root: Member) -> str:
    count, said = len(root.segments), sum(segment["message_count"] for segment in root.segments)
    title = output.style(text.harmless(root.title or title_of(root.segments[-1])), "bold")
    counts = f"{text.counted(count, 'segment')}, {text.counted(said, 'message')}"
    facts = f" · {root.segments[0]['source']} · {counts}"
    return title + output.style(text.harmless(facts), "dim")


def _origin(family: Family) -> str:
    root = family.root
    kind = {"branch": "branched from", "delegate": "delegated by", "reset": "follows"}.get(root.kind, "began in")
    title = f'"{family.origin_title}" · ' if family.origin_title else ""
    return f"{kind} {title}{root.origin_session_id or 'a conversation that is gone'}"


class _Drawer:
    def __init__(self, asked: str, columns: int | None, now: float | None) -> None:
        self.lines: list[str] = []
        self._asked = asked
        self._columns = columns
        self._now = now

    def draw(self, member: Member, rail: str) -> None:
        """Append the lines of one conversation, each behind `rail`."""
        for place, segment in enumerate(member.segments):
            last = place == len(member.segments) - 1
            children = member.began_in.get(segment["id"], [])
            self._segment(rail, segment, began=place == 0)
            for number, child in enumerate(children):
                ends = last and number == len(children) - 1
                title = child.title or title_of(child.segments[-1])
                elbow = f"{rail}{'└─' if ends else '├─'} {_KINDS.get(child.kind, child.kind)}"
                self._line(output.style(elbow, "dim"), text.width(elbow), f"  {title}", None)
                below = rail + ("   " if ends else "│  ")
                if child.kind == "reset":
                    self._segment(below, child.segments[-1], began=True)
                else:
                    self.draw(child, below)
            if not last and not children:
                self.lines.append(output.style(f"{rail}│", "dim"))

    def _segment(self, rail: str, segment: dict[str, Any], *, began: bool) -> None:
        ended = segment["ended_at"] is not None
        circle = "○" if ended else output.style("●", "green")
        head = f"{output.style(rail, 'dim') if rail else ''}{circle} {text.harmless(segment['id'])}"
        width = text.width(rail) + 2 + text.width(text.harmless(segment["id"]))
        self._line(head, width, f"  {self._facts(segment, began=began)}", "dim")

    def _facts(self, segment: dict[str, Any], *, began: bool) -> str:
        facts = [text.counted(segment["message_count"], "message")]
        if began and segment["ended_at"] is not None:
            facts.append(f"began {self._ago(segment['started_at'])}")
        if segment["ended_at"] is None:
            facts.append(f"active {self._ago(segment['last_active'])}")
        else:
            facts.append(f"{ended(segment['end_reason'])} {self._ago(segment['ended_at'])}")
        if segment["archived"]:
            facts.append("archived")
        if segment["id"] == self._asked:
            facts.append("← this one")
        return " · ".join(facts)

    def _ago(self, instant: float) -> str:
        return text.when(instant, now=self._now)

    def _line(self, head: str, width: int, rest: str, style: str | None) -> None:
        tail = text.harmless(rest)
        if self._columns is not None:
            tail = text.shorten(tail, max(self._columns - width, 8))
        self.lines.append(head + (output.style(tail, style) if style else tail))
