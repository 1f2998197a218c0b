"""What the store means, in plain Python: conversations, transcripts and routes.

The state machine of the tests does everything twice, here and in a real store, and compares. So this is the
shortest complete description of the ledger's verbs; where the two disagree, one of them is wrong. It knows
nothing of files, processes or SQL. `model_work` has leases, inbox, turns and outbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ACCIDENTS = ("agent_close", "ws_orphan_reap")


@dataclass
class Row:
    role: str
    content: str
    state: str = "live"  # live | taken back | summarised | replaced


@dataclass
class Segment:
    id: str
    root: str
    parent: str | None = None
    ended: str | None = None
    title: str | None = None
    rows: list[Row] = field(default_factory=list)
    count: int = 0

    def live(self) -> list[Row]:
        return [row for row in self.rows if row.state == "live"]

    def visible(self) -> list[Row]:
        return [row for row in self.rows if row.state != "replaced"]

    def put(self, said: list[tuple[str, str]]) -> None:
        """These rows, and the counter says exactly that many."""
        self.rows += [Row(role, content) for role, content in said]
        self.count = len(said)


class Ended(Exception):
    """The segment was compressed and continues at `tip`."""

    def __init__(self, tip: str) -> None:
        super().__init__(tip)
        self.tip = tip


class Conversations:
    """Segments by id, and where routes lead. Every method is one verb; `new` is the id the verb must use."""

    def __init__(self) -> None:
        self.segments: dict[str, Segment] = {}
        self.routes: dict[str, str] = {}

    # -- looking -------------------------------------------------------------------------------------------

    def tip(self, session: str) -> str:
        """Follow compressions to the segment that is written to."""
        while self.segments[session].ended == "compression":
            (session,) = [s.id for s in self.segments.values() if s.parent == session and s.root == self.root(session)]
        return session

    def root(self, session: str) -> str:
        return self.segments[session].root

    def roots(self) -> list[str]:
        return [s.id for s in self.segments.values() if s.root == s.id]

    # -- the ledger ----------------------------------------------------------------------------------------

    def open(self, new: str, route: str | None = None) -> None:
        self.segments[new] = Segment(new, new)
        if route is not None:
            self.routes[route] = new

    def resolve(self, route: str, new: str | None = None) -> str | None:
        """What the route leads to; with `new`, a fresh conversation where there is none or it was ended for good."""
        if route not in self.routes:
            if new is not None:
                self.open(new, route)
            return new
        here = self.segments[self.routes[route]]
        if here.ended in ACCIDENTS:
            here.ended = None
        elif here.ended is not None:
            if new is not None:
                self.open(new, route)
            return new
        return here.id

    def rotate(self, session: str, said: list[tuple[str, str]], new: str) -> None:
        parent = self._writable(session)
        child = Segment(new, parent.root, parent.id, title=parent.title)
        child.put(said)
        parent.ended, parent.title = "compression", None
        self.segments[new] = child
        self.routes = {route: new if leads == session else leads for route, leads in self.routes.items()}

    def branch(self, session: str, new: str, route: str | None = None) -> None:
        self.segments[new] = Segment(new, new, session)
        self.segments[new].put([(row.role, row.content) for row in self.segments[session].live()])
        if route is not None:
            self._leave(route, "session_switch")
            self.routes[route] = new

    def switch(self, route: str, target: str) -> str:
        tip = self.tip(target)
        if self.routes.get(route) != tip:
            self._leave(route, "session_switch")
            self.routes[route] = tip
        self.segments[tip].ended = None
        return tip

    def reset(self, route: str, new: str) -> None:
        self._leave(route, "session_reset")
        self.open(new, route)

    def end(self, session: str, reason: str) -> bool:
        """The first real reason stays; an accident gives way to it."""
        tip = self.segments[self.tip(session)]
        if tip.ended is not None and tip.ended not in ACCIDENTS:
            return False
        tip.ended = reason
        return True

    def reopen(self, session: str) -> str:
        tip = self.tip(session)
        self.segments[tip].ended = None
        return tip

    def delete(self, session: str) -> list[str]:
        """Erase the whole conversation; the ids that are gone."""
        root = self.root(session)
        gone = [s.id for s in self.segments.values() if s.root == root]
        self.segments = {s.id: s for s in self.segments.values() if s.id not in gone}
        self.routes = {route: leads for route, leads in self.routes.items() if leads not in gone}
        for segment in self.segments.values():
            if segment.parent in gone:
                segment.parent = None
        return gone

    def rename(self, session: str, title: str) -> None:
        self.segments[session].title = title

    def _leave(self, route: str, reason: str) -> None:
        """What a route turns away from ends, unless another route still leads there."""
        left = self.routes.pop(route, None)
        if left is not None and left not in self.routes.values():
            self.end(left, reason)

    # -- the transcript ------------------------------------------------------------------------------------

    def append(self, session: str, said: list[tuple[str, str]]) -> None:
        segment = self._writable(session)
        segment.rows += [Row(role, content) for role, content in said]
        segment.count += len(said)

    def rewind(self, session: str, visible_index: int) -> int:
        """Take back a visible row and every live one after it; how many."""
        segment = self.segments[session]
        back = [row for row in segment.visible()[visible_index:] if row.state == "live"]
        for row in back:
            row.state = "taken back"
        return len(back)

    def replace(self, session: str, said: list[tuple[str, str]]) -> None:
        segment = self.segments[session]
        for row in segment.rows:
            row.state = "replaced"
        segment.put(said)

    def compact(self, session: str, said: list[tuple[str, str]]) -> None:
        segment = self.segments[session]
        for row in segment.live():
            row.state = "summarised"
        segment.put(said)

    def _writable(self, session: str) -> Segment:
        tip = self.tip(session)
        if self.segments[session].ended == "compression":
            raise Ended(tip)
        return self.segments[session]
