"""Proposals: changes of skills and memory that wait for a person's yes.

A proposal is the new text of one file and the text it was made for. `open` → `accepted` (→ `undone`) · `refused` ·
`outdated` (the file was changed meanwhile). `decide` calls the given function, which writes the file, and stores the
decision in one transaction that has locked the row: of two people one decides. The file is small, and a person's yes is
rare, so that writers wait for it. A crash between the write and the commit leaves the row as it was with the file
already changed; the next decision finds that and finishes or takes it back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, PersonId
from hermes_state.storage.base import Connection, StorePart, in_transaction
from hermes_state.storage.statements import Queries

ProposalKind = Literal["skill", "memory"]
_LONGEST = 200_000
_OPEN_PER_FILE = 5
"""Beyond it the oldest open proposal for a file is refused: a model that proposes again and again floods nobody."""


@dataclass(frozen=True, slots=True)
class Proposal:
    id: str
    kind: ProposalKind
    file: str
    before: str | None
    after: str | None
    why: str
    origin: str | None
    person_id: PersonId
    conversation_id: ConversationId | None
    state: str
    decided_by: str | None
    made_at: float
    decided_at: float | None


_proposal = columns.RowType(Proposal)
Q = Queries("proposals", columns=_proposal.columns)


class Proposals(StorePart):
    @in_transaction
    def add(
        self,
        conn: Connection,
        kind: ProposalKind,
        file: str,
        *,
        before: str | None,
        after: str | None,
        why: str,
        person_id: PersonId,
        conversation_id: ConversationId | None = None,
        origin: str | None = None,
        shown: bool = False,
    ) -> Proposal:
        """Store a proposal; an open one that would do the same is returned instead. `shown`: it needs no card."""
        if len(after or "") > _LONGEST:
            raise InvalidValue(f"the new text has more than {_LONGEST:,} characters")
        same = [_proposal(row) for row in conn.rows(Q.same, (kind, file, person_id))]
        if found := next((one for one in same if (one.before, one.after) == (before, after)), None):
            return found
        for old in sorted(same, key=lambda one: one.made_at)[: max(0, len(same) + 1 - _OPEN_PER_FILE)]:
            conn.run(Q.decide, ("refused", "a newer proposal", self._store.clock(), old.id, "open"))
        new = f"p{os.urandom(4).hex()}"
        text = tuple(None if one is None else columns.clean(one) for one in (before, after))
        conn.run(
            Q.add,
            (
                new,
                kind,
                file,
                *text,
                columns.note(why) or "",
                origin,
                person_id,
                conversation_id,
                int(shown),
                self._store.clock(),
            ),
        )
        return _proposal(conn.rows(Q.get, (new,))[0])

    def get(self, proposal_id: str) -> Proposal | None:
        rows = self._rows(Q.get, (columns.clean(proposal_id),))
        return _proposal(rows[0]) if rows else None

    def list(self, *, state: str = "", person_id: PersonId | str = "", limit: int = 100) -> tuple[Proposal, ...]:
        return tuple(map(_proposal, self._rows(Q.list, (state, state, person_id, person_id, limit))))

    def unshown(self, *, limit: int = 20) -> tuple[Proposal, ...]:
        """Open proposals without a card, oldest first."""
        return tuple(map(_proposal, self._rows(Q.unshown, (limit,))))

    def mark_shown(self, proposal_id: str) -> None:
        self._run(Q.show, (proposal_id,))

    def reword(self, proposal_id: str, after: str) -> None:
        """Replace the text of an open proposal by the one that a person wants."""
        self._run(Q.reword, (columns.clean(after), proposal_id))

    @in_transaction
    def decide(
        self,
        conn: Connection,
        proposal_id: str,
        state: Literal["accepted", "refused", "undone"],
        *,
        by: str,
        write: Callable[[Proposal], bool],
    ) -> Proposal | None:
        """Decide about a proposal: `write` makes the file fit the decision; False: it was changed meanwhile.

        Returns the proposal as it is now, also if it was decided before; None if there is none.
        """
        rows = conn.rows(Q.get.locked, (proposal_id,))
        if not rows:
            return None
        found = _proposal(rows[0])
        expected = "accepted" if state == "undone" else "open"
        if found.state != expected:
            return found
        fits = write(replace(found, state=state))
        new = state if fits else "accepted" if state == "undone" else "outdated"
        conn.run(Q.decide, (new, columns.note(by), self._store.clock(), found.id, expected))
        return _proposal(conn.rows(Q.get, (found.id,))[0])

    def prune(self) -> int:
        """Remove proposals after `limits.approvals_days`."""
        return self._remove_old(self._store.limits.approvals_days, Q.prune)
