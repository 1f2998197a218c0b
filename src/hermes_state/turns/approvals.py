"""Approvals: questions to a person, the grants that answers create, and the log of calls that left the sandbox.

A question names the turn, the hash of the exact call, who asked, who may decide, and when it expires. The answer is a
denial, or a yes, which becomes rows of `grants`. A grant has a size (a folder, the network, a tool, one exact call) and
an end: with the task, with the conversation, at a time, after a number of uses, or when it is revoked. A yes for `once`
is one use of the exact call. Anything else — time-out, unknown id, somebody else's answer, a second use — is a denial.
Questions and answers are rows, so both survive a restart. One transaction uses a grant and logs the call that left the
sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args
from urllib.parse import unquote

from hermes_state import columns
from hermes_state.errors import InvalidValue
from hermes_state.ids import ConversationId, PersonId, TurnId, checked_id
from hermes_state.storage.base import Connection, StorePart, in_transaction
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases

Verdict = Literal["once", "task", "session", "always", "deny"]
GrantKind = Literal["folder", "network", "tool", "target", "exact"]
Span = Literal["task", "conversation", "always"]
_WIDE: tuple[GrantKind, ...] = ("folder", "network", "tool", "target")
_SPANS: dict[str, Span] = {"once": "task", "task": "task", "session": "conversation", "always": "always"}
_MAX_SHOWN = 2_000
MOST_USES = 1_000


@dataclass(frozen=True, slots=True)
class Approval:
    id: str
    conversation_id: ConversationId
    turn_id: TurnId
    call_hash: str
    call: dict[str, Any]
    requester_id: PersonId | None
    approver_id: PersonId | None
    state: str
    """`used`: one of its grants was used at least once."""
    scope: str | None
    reason: str | None
    created_at: float
    expires_at: float
    decided_at: float | None
    used_at: float | None


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission that one yes gives."""

    id: str
    person_id: PersonId | None
    conversation_id: ConversationId
    turn_id: TurnId
    kind: GrantKind
    value: str
    patterns: dict[str, str] | None
    """For a tool: argument → glob that its value must match; None: any arguments."""
    shown: str
    span: Span
    uses_left: int | None
    expires_at: float | None
    approval_id: str | None
    granted_by: PersonId | None
    state: str
    reason: str | None
    created_at: float
    ended_at: float | None

    def covers(self, need: Wanted) -> bool:
        """Whether this grant alone permits the need. A grant for a tool covers a target only if it names the target."""
        if self.kind == "tool" and need.kind == "target":
            return self._names(need)
        if self.kind != need.kind:
            return False
        if self.kind == "folder":
            return _is_within(need.value, self.value)
        if self.kind == "tool":
            return need.value == self.value and _match(self.patterns, need.arguments)
        return self.kind == "network" or need.value == self.value

    def _names(self, need: Wanted) -> bool:
        tool, _, rest = need.value.partition(" ")
        argument, _, value = rest.partition("=")
        pattern = (self.patterns or {}).get(argument)
        return tool == self.value and pattern is not None and _fits(value, pattern)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing that a call needs a grant for."""

    kind: str
    """`folder`, `network`, `tool` or `target` (`TOOL ARGUMENT=VALUE`); only a grant of the exact call covers any other
    kind."""
    value: str = ""
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """A call that leaves the sandbox when the permission is used."""

    kind: str
    text: str
    workdir: str
    opening: str
    digest: str


@dataclass(frozen=True, slots=True)
class LoggedExit:
    id: int
    at: float
    person_id: PersonId | None
    conversation_id: ConversationId
    turn_id: TurnId
    kind: str
    text: str
    workdir: str
    opening: str
    digest: str
    allowed_by: Literal["grant", "config"]
    grants: tuple[str, ...]
    rule: str | None


_approval = columns.RowType(Approval)
_grant = columns.RowType(Grant)
_exit = columns.RowType(LoggedExit)
Q = Queries("approvals", columns=_approval.columns, grant_columns=_grant.columns, exit_columns=_exit.columns)


class Approvals(StorePart):
    """Asks questions, stores decisions, uses grants, and logs calls that left the sandbox."""

    # -- questions -----------------------------------------------------------------------------------------

    @in_transaction
    def ask(
        self,
        conn: Connection,
        *,
        conversation_id: ConversationId,
        turn_id: TurnId,
        call_hash: str,
        call: Mapping[str, Any],
        requester_id: PersonId | None,
        approver_id: PersonId | None,
        seconds: float,
        fence: int | None = None,
    ) -> Approval:
        """Ask about this call, or return the question that is already open when the turn was resumed.

        `call` is shown to the person. Its `needs` ([kind, value] pairs), `choices` and `task` decide what a yes grants;
        see `decide`. If the permission of an earlier question is used up, the same call is asked about again.
        """
        checked_id(call_hash, what="call hash")
        if seconds <= 0:
            raise InvalidValue(f"a question must stay open for some time, not {seconds} s")
        text = columns.to_json(call, self._store.limits, what="the call")
        now, new = self._store.clock(), f"ask_{os.urandom(6).hex()}"
        params = (new, conversation_id, turn_id, call_hash, text, requester_id, approver_id, now, now + seconds)
        if fence is not None:
            leases.check(self._store, conn, conversation_id, fence)
        conn.run(Q.put_aside, (turn_id, call_hash))
        conn.run(Q.ask, params)
        return _approval(conn.rows(Q.of_call, (turn_id, call_hash))[0])

    @in_transaction
    def decide(
        self,
        conn: Connection,
        approval_id: str,
        verdict: Verdict,
        *,
        approver_id: PersonId | None,
        reason: str = "",
        uses: int | None = None,
        until: float | None = None,
    ) -> Approval | None:
        """Answer a question; None when it is no longer open, has expired, or somebody else must answer it.

        A yes writes its grants in the same transaction: for `once` one use of the exact call; else one row for each
        folder, the network or the tool that the call needs, and the exact call for needs that no such row can cover.
        `uses` and `until` limit a yes further. A yes that was not offered, or for an unknown requester, is `once`.
        """
        if verdict not in get_args(Verdict):
            raise InvalidValue(f"no such answer: {verdict!r:.40}", hint="task, once, session, always or deny.")
        if uses is not None and not 0 < uses <= MOST_USES:
            raise InvalidValue(f"a permission is for 1 to {MOST_USES:,} uses, not {uses}")
        now = self._store.clock()
        found = conn.rows(Q.get.locked, (approval_id,))
        if not found:
            return None
        asked = _approval(found[0])
        mine = asked.approver_id is None or asked.approver_id == approver_id
        if asked.state != "pending" or asked.expires_at <= now or not mine:
            return None
        given = _effective_verdict(asked, verdict)
        state, scope = ("denied", None) if given == "deny" else ("granted", given)
        conn.run(Q.decide, (state, scope, approver_id, columns.note(reason), now, approval_id))
        if scope is not None:
            bounds = (1, None) if scope == "once" else (uses, until)
            for params in _grants(asked, scope, approver_id, *bounds, now):
                conn.run(Q.grant, params)
        return _approval(conn.rows(Q.get, (approval_id,))[0])

    def get(self, approval_id: str) -> Approval | None:
        return self._one(_approval, Q.get, (approval_id,))

    def of_turn(self, turn_id: TurnId) -> tuple[Approval, ...]:
        """Every question of a turn, oldest first."""
        return tuple(map(_approval, self._rows(Q.of_turn, (turn_id,))))

    def pending(self, *, limit: int = 100) -> tuple[Approval, ...]:
        """Open questions, oldest first."""
        return tuple(map(_approval, self._rows(Q.pending, (self._store.clock(), limit))))

    def lapse(self) -> tuple[Approval, ...]:
        """Close expired questions; they count as denials."""
        now = self._store.clock()
        found = self._store.engine.write(lambda conn: conn.rows(Q.lapse, (now, now)), single=True)
        return tuple(map(_approval, found))

    # -- grants --------------------------------------------------------------------------------------------

    @in_transaction
    def spend(
        self,
        conn: Connection,
        *,
        conversation_id: ConversationId,
        turn_id: TurnId,
        call_hash: str,
        person_id: PersonId | None,
        needs: Sequence[Wanted] = (),
        task_id: TurnId | None = None,
        leaves: Exit | None = None,
        fence: int | None = None,
    ) -> tuple[Grant, ...]:
        """Use the grants that permit this call now, log the call, and return the grants; an empty tuple is a denial.

        `task_id`: the turn whose task this is, when another turn started this one. `leaves`: the entry for the log.
        """
        now = self._store.clock()
        task = task_id or turn_id
        scope = (person_id, None if person_id else task, now, conversation_id, task, call_hash)
        if fence is not None:  # a turn that lost its lease must not use up the permission of its successor
            leases.check(self._store, conn, conversation_id, fence)
        used = _grants_covering([_grant(row) for row in conn.rows(Q.usable, scope)], call_hash, needs)
        if used:
            ids = [grant.id for grant in used]
            conn.run(Q.use, (now, columns.texts(ids)))
            conn.run(Q.served, (now, columns.texts(grant.approval_id for grant in used if grant.approval_id)))
            if leaves is not None:
                conn.run(Q.log, _exit_params(leaves, now, person_id, conversation_id, turn_id, grants=ids))
        return used

    @in_transaction
    def log_exit(
        self,
        conn: Connection,
        leaves: Exit,
        *,
        person_id: PersonId | None,
        conversation_id: ConversationId,
        turn_id: TurnId,
        rule: str,
        fence: int | None = None,
    ) -> None:
        """Log a call that the configuration lets out of the sandbox, before it runs."""
        now = self._store.clock()
        if fence is not None:
            leases.check(self._store, conn, conversation_id, fence)
        conn.run(Q.log, _exit_params(leaves, now, person_id, conversation_id, turn_id, rule=rule))

    @in_transaction
    def add(
        self,
        conn: Connection,
        *,
        person_id: PersonId,
        kind: GrantKind,
        value: str,
        shown: str,
        granted_by: PersonId,
        patterns: Mapping[str, str] | None = None,
        uses: int | None = None,
        until: float | None = None,
    ) -> Grant:
        """A grant without a question: the owner gives it at the terminal, for every conversation."""
        now, new = self._store.clock(), f"grant_{os.urandom(6).hex()}"
        globs = columns.to_json(patterns, self._store.limits, what="the patterns")
        params = (
            new, person_id, "", "", kind, value, globs, columns.note(shown) or "", "always", uses, until, None,
            granted_by, now,
        )  # fmt: skip
        conn.run(Q.grant, params)
        return _grant(conn.rows(Q.named_grants, (columns.texts([new]),))[0])

    def grants(self, *, person_id: PersonId | None = None) -> tuple[Grant, ...]:
        """Every active grant, oldest first; with `person_id`, only that person's."""
        found = self._rows(Q.live, (self._store.clock(),))
        live = map(_grant, found)
        return tuple(grant for grant in live if person_id is None or grant.person_id == person_id)

    def named(self, grant_ids: Iterable[str]) -> dict[str, Grant]:
        """Grants by their ids, active or ended; ids of removed grants are missing."""
        return {grant.id: grant for grant in map(_grant, self._rows(Q.named_grants, (columns.texts(grant_ids),)))}

    @in_transaction
    def revoke(self, conn: Connection, number: str, *, reason: str = "revoked by hand") -> bool:
        """Revoke a grant, or a question with all its grants."""
        why, now = columns.note(reason), self._store.clock()
        if conn.run(Q.end_grant, (why, now, number)):
            conn.run(Q.unapprove, (why, now, number))
            return True
        return conn.run(Q.revoke, (why, now, number)) + conn.run(Q.end_grants_of, (why, now, number)) > 0

    def withdraw(self, question_id: str, *, reason: str) -> bool:
        """Close a question that nobody needs any more. What an answer has permitted stays permitted."""
        return self._run(Q.withdraw, (columns.note(reason), self._store.clock(), question_id)) == 1

    def leave_conversation(self, conversation_id: ConversationId, *, person_id: PersonId) -> int:
        """End this person's grants for a conversation; returns their number."""
        params = ("the conversation was left", self._store.clock(), conversation_id, person_id)
        return self._run(Q.end_conversation, params)

    # -- the log -------------------------------------------------------------------------------------------

    def exits(self, *, limit: int = 100) -> tuple[LoggedExit, ...]:
        """Logged calls that left the sandbox, newest first."""
        return tuple(map(_exit, self._rows(Q.exits, (limit,))))

    def exits_of_turn(self, conversation_id: ConversationId, turn_id: TurnId) -> tuple[LoggedExit, ...]:
        """The calls of a turn that left the sandbox, in order."""
        return tuple(map(_exit, self._rows(Q.exits_of_turn, (conversation_id, turn_id))))

    def prune(self) -> int:
        """Remove rows that ended longer ago than `limits.approvals_days`; active grants stay."""
        self.lapse()
        days = self._store.limits.approvals_days
        return self._remove_old(days, Q.prune, Q.prune_exits) + self._remove_old(days, Q.prune_grants, times=3)


def _effective_verdict(asked: Approval, verdict: Verdict) -> Verdict:
    """The answer that takes effect: `once` when the given yes was not offered."""
    offered = asked.call.get("choices")
    if verdict == "deny":
        return "deny"
    if asked.requester_id is None or (isinstance(offered, list) and verdict not in offered):
        return "once"
    return verdict


def _grants(
    asked: Approval, scope: str, approver_id: PersonId | None, uses: int | None, until: float | None, now: float
) -> list[tuple[Any, ...]]:
    """The parameters of the grant rows that a yes creates."""
    call = asked.call
    needs = [(str(kind), "" if kind == "network" else str(value)) for kind, value in call.get("needs") or ()]
    wide = [] if scope == "once" else list(dict.fromkeys(need for need in needs if need[0] in _WIDE))
    sizes = [*wide, *([("exact", asked.call_hash)] if len(wide) < len(set(needs)) or not wide else [])]
    shown = str(call.get("text") or call.get("kind") or "")[:_MAX_SHOWN]
    task = str(call.get("task") or asked.turn_id)
    return [
        (
            f"grant_{os.urandom(6).hex()}", asked.requester_id, asked.conversation_id, task, kind, value, None,
            columns.note(shown) or "", _SPANS[scope], uses, until, asked.id, approver_id, now,
        )
        for kind, value in sizes
    ]  # fmt: skip


def _grants_covering(usable: Sequence[Grant], call_hash: str, needs: Sequence[Wanted]) -> tuple[Grant, ...]:
    """The grants that together permit the call; empty when a need is not covered. Grants with limited uses go first."""
    ordered = sorted(usable, key=lambda grant: grant.uses_left is None)
    exact = next((grant for grant in ordered if grant.kind == "exact" and grant.value == call_hash), None)
    if exact is not None:
        return (exact,)
    chosen: dict[str, Grant] = {}
    for need in needs:
        found = next((grant for grant in ordered if grant.covers(need)), None)
        if found is None:
            return ()
        chosen[found.id] = found
    return tuple(chosen.values())


def _is_within(path: str, folder: str) -> bool:
    if ".." in path.split("/"):
        return False
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _match(patterns: Mapping[str, str] | None, arguments: Mapping[str, Any] | None) -> bool:
    given = {
        name: [str(one) for one in (value if isinstance(value, list) else (value,))]
        for name, value in (arguments or {}).items()
    }
    return all(
        bool(given.get(name)) and all(_fits(one, pattern) for one in given[name])
        for name, pattern in (patterns or {}).items()
    )


def _fits(value: str, pattern: str) -> bool:
    """Whether a value matches a glob. A path with `..` leaves the folder that it begins with, so it never does."""
    return ".." not in re.split(r"[/\\]", unquote(value)) and fnmatchcase(value, pattern)


def _exit_params(
    leaves: Exit,
    now: float,
    person_id: PersonId | None,
    conversation_id: ConversationId,
    turn_id: TurnId,
    *,
    grants: Sequence[str] = (),
    rule: str | None = None,
) -> tuple[Any, ...]:
    texts = [columns.note(value) or "" for value in (leaves.kind, leaves.text, leaves.workdir, leaves.opening)]
    by = "config" if rule else "grant"
    whose = (now, person_id, conversation_id, turn_id)
    return (*whose, *texts, leaves.digest, by, columns.texts(grants), columns.note(rule))
