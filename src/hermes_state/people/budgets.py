"""Spending limits, as rows that every process sees.

A tally is the sum that counts against one limit: of a conversation, of a person's day or month, of everybody's day or
month. `reserve` adds a call's estimate to all its tallies and records the call, in one transaction that is undone when
a limit would be passed; an answer that may be shorter is cut to the remaining amount. `settle` replaces the estimate by
the actual usage, `release` removes it. The day's tally is always updated first and its row stays locked until the
commit, so of two processes at a limit one sees the sum of the other. Under a limit, processes on one PostgreSQL store
thus wait for each other's commits, never longer than a group may (`storage.postgres`).

A call whose process was killed stays counted at its estimate: the provider may have billed it, and a crash must not
lift a limit. `open_calls` shows its row as lost until maintenance removes it. Its id begins with its process, so that
the same machine knows it at once; elsewhere its age tells.

Tallies are kept while a limit is configured, and state_meta says since when. Usage that is accounted without a limit
(`usage.account`) removes that mark, so the next call under a limit knows that the tallies miss something, and raises
them to the usage of their periods as far as `usage` knows it. The usage of a scheduled job that has a limit of its own,
without any in the configuration, is kept for conversations alone. Money is whole nano-dollars here: sums stay exact.
This module knows no prices.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from hermes_state.columns import DAY, note
from hermes_state.errors import OverLimit
from hermes_state.ids import ConversationId, PersonId, checked_id
from hermes_state.people.people import Q as PEOPLE
from hermes_state.storage import meta, writer
from hermes_state.storage.base import Connection, Row, StorePart
from hermes_state.storage.statements import Queries

Q = Queries("budgets")
COUNTED = "budget_counted_since"
_ZONE = "budget_zone:"
_LONGEST_DAY = 1.5 * DAY
_LONGEST_MONTH = 32 * DAY

Scope = Literal["day", "month", "person_day", "person_month", "conversation"]
Unit = Literal["usd", "tokens"]
NANO = 1_000_000_000


class Amount(NamedTuple):
    nano_usd: int = 0
    tokens: int = 0

    def of(self, unit: Unit) -> int:
        return self.nano_usd if unit == "usd" else self.tokens


class Limit(NamedTuple):
    """The largest allowed amount, in nano-dollars or tokens."""

    scope: Scope
    unit: Unit
    most: int


class LongestAnswer(NamedTuple):
    """The part of an estimate that may be reduced: the answer, whose length the provider gets."""

    tokens: int
    nano_usd: float
    """The cost of one token."""
    least: int
    """A shorter one is not worth a call."""


class Key(NamedTuple):
    """Identifies one tally."""

    scope: Scope
    subject: str
    period: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A limit that is nearly used up, so its person should know; reported once per limit and period."""

    limit: Limit
    used: int
    period: str


@dataclass(frozen=True, slots=True)
class Held:
    """A call that may be made; `settle` or `release` closes it."""

    id: str
    limits: tuple[Limit, ...]
    warnings: tuple[Warned, ...]
    cut: int = 0
    """By how many tokens the answer has to be shorter than requested."""
    cut_by: Limit | None = None
    above: tuple[ConversationId, ...] = ()
    """The conversations that the call also counts for: those that delegated the work."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A running call, or one whose process died (`lost`)."""

    person_id: str
    conversation_id: str
    model: str
    task: str
    amount: Amount
    made_at: float
    lost: bool
    """Whether it is older than a call can be."""
    holder: str
    """The process that makes it, as leases name it; empty when not given."""


class Budgets(StorePart):
    """Reserves, settles and releases calls, and reports usage."""

    # -- from an event loop --------------------------------------------------------------------------------

    async def reserve(
        self,
        limits: tuple[Limit, ...],
        estimate: Amount,
        *,
        conversation_id: ConversationId,
        person_id: PersonId | None,
        model: str,
        answer: LongestAnswer | None = None,
        task: str = "",
        holder: str = "",
        above: Mapping[ConversationId, tuple[Limit, ...]] = MappingProxyType({}),
        configured: bool = True,
    ) -> Held:
        """Reserve one call under all `limits`. Raises `OverLimit` with nothing written.

        `answer`: the part of the estimate that may be cut to the remaining amount. `above`: the conversations that
        delegated the work, each with its limits; the call counts for them, too. `configured`: whether the configuration
        has limits; without, only conversations are counted.
        """
        import asyncio

        checked_id(conversation_id, what="conversation id")
        new, engine = f"{holder}/{os.urandom(8).hex()}", self._store.engine
        call = (new, conversation_id, person_id, note(model) or "", note(task) or "")
        made = writer.queued(
            engine, lambda conn: self._reserve_in(conn, limits, estimate, answer, call, above, configured)
        )
        try:
            held: Held = await asyncio.shield(made)
        except asyncio.CancelledError:
            # Nobody will close it. The writer works in order, so this runs after the reservation.
            made.add_done_callback(_ignore_error)
            writer.queued(engine, lambda conn: self._close_in(conn, new, (), Amount(), tuple(above))).add_done_callback(
                _ignore_error
            )
            raise
        return held

    async def settle(self, held: Held, used: Amount | None) -> tuple[Warned, ...]:
        """Count the call's usage; None keeps the estimate."""
        close = writer.queued(
            self._store.engine, lambda conn: self._close_in(conn, held.id, held.limits, used, held.above)
        )
        warnings: tuple[Warned, ...] = await close
        return warnings

    async def release(self, held: Held) -> None:
        """Remove the estimate: the call was not made, or had no result."""
        await writer.queued(self._store.engine, lambda conn: self._close_in(conn, held.id, (), Amount(), held.above))

    # -- in a transaction ------------------------------------------------------------------------------------

    def _reserve_in(
        self,
        conn: Connection,
        limits: tuple[Limit, ...],
        estimate: Amount,
        answer: LongestAnswer | None,
        call: tuple[str, ConversationId, PersonId | None, str, str],
        above: Mapping[ConversationId, tuple[Limit, ...]],
        configured: bool,
    ) -> Held:
        new, conversation_id, person_id, model, task = call
        now = self._store.clock()
        day = person_day = ""
        complete: list[Key] = []
        keys = _conversation_keys((conversation_id, *above))
        if configured:
            zone = _zone_of(conn, person_id, now)
            day, person_day = day_of(now), day_of(now, zone)
            since = self._counted_since(conn, now)
            complete = _keys(day_of(since), person_id, day_of(since, zone), None)
            keys = [*_keys(day, person_id, person_day, None), *keys]
        else:
            for key in keys:
                _raise_to_usage(conn, key)
        warnings: list[Warned] = []
        cut, cut_by = 0, None
        for key in keys:
            state = self._add(conn, key, estimate, now, new=_begins_after(complete, key))
            known = limits if key.subject == conversation_id else above.get(ConversationId(key.subject), limits)
            for limit in (one for one in known if one.scope == key.scope):
                asked, total = estimate.of(limit.unit), _total(state).of(limit.unit)
                if asked and total > limit.most:
                    shorter = _shorter(answer, total - limit.most, limit.unit)
                    if shorter is None:
                        reserved = _reserved(conn, key).of(limit.unit)
                        used, needed = total - asked, asked - _largest_saving(answer, limit.unit)
                        raise OverLimit(key.scope, limit.unit, limit.most, used, reserved, needed, key.period)
                    cut, cut_by = (shorter, limit) if shorter > cut else (cut, cut_by)
                warnings += self._warn(conn, key, limit, state, total - asked)
        if answer is not None and cut:
            less = Amount(-int(cut * answer.nano_usd), -cut)
            for key in keys:
                self._add(conn, key, less, now)
            estimate = Amount(estimate.nano_usd + less.nano_usd, estimate.tokens + less.tokens)
        conn.run(Q.hold, (new, day, person_id or "", person_day, conversation_id, model, task, *estimate, now))
        return Held(new, limits, tuple(warnings), cut, cut_by, tuple(above))

    def _close_in(
        self,
        conn: Connection,
        call_id: str,
        limits: tuple[Limit, ...],
        used: Amount | None,
        above: tuple[ConversationId, ...],
    ) -> tuple[Warned, ...]:
        """Delete the row and replace its estimate by `used`. Without the row, nothing happens."""
        found = conn.rows(Q.drop, (call_id,))
        if not found:
            return ()
        day, person, person_day, conversation, nano_usd, tokens = found[0]
        used = Amount(nano_usd, tokens) if used is None else used
        change, now = Amount(used.nano_usd - nano_usd, used.tokens - tokens), self._store.clock()
        warnings: list[Warned] = []
        for key in _keys(day, person or None, person_day, conversation or None):
            for state in conn.rows(Q.add, (*change, now, *key)):
                for limit in (one for one in limits if one.scope == key.scope):
                    warnings += self._warn(conn, key, limit, state, _total(state).of(limit.unit))
        for key in _conversation_keys(above):
            conn.run(Q.add, (*change, now, *key))
        return tuple(warnings)

    def _counted_since(self, conn: Connection, now: float) -> float:
        """Since when every call was counted; from now on, if some were not, after raising the tallies."""
        since = _since(conn)
        if since is None:
            since = now
            meta.put(conn, COUNTED, repr(now))
            for row in conn.rows(Q.present, (now - _LONGEST_MONTH,)):
                _raise_to_usage(conn, Key(*row))
        return since

    def _add(self, conn: Connection, key: Key, amount: Amount, now: float, *, new: bool = False) -> Row:
        """Add to a tally. `new`: its period began under limits, so nothing was used before its first call."""
        for state in conn.rows(Q.add, (*amount, now, *key)):
            return state
        before = Amount() if new else _before(conn, key)
        first = (before.nano_usd + amount.nano_usd, before.tokens + amount.tokens)
        return conn.rows(Q.found, (*key, *first, now, *amount))[0]

    def _warn(self, conn: Connection, key: Key, limit: Limit, state: Row, used: int) -> list[Warned]:
        warned = state[2] if limit.unit == "usd" else state[3]
        if limit.most == warned or used * 100 < limit.most * self._store.limits.budget_warning_percent or not used:
            return []
        conn.run(Q.warned_usd if limit.unit == "usd" else Q.warned_tokens, (limit.most, *key))
        return [Warned(limit, used, key.period)]

    # -- reads -----------------------------------------------------------------------------------------------

    def used(self, scope: Scope, subject: str = "", *, zone: str | None = None) -> tuple[str, Amount]:
        """The present period and its usage, reserved calls included."""
        now = self._store.clock()

        def run(conn: Connection) -> tuple[str, Amount]:
            counted = _zone_in(conn, subject, zone, now) if scope.startswith("person") else zone
            today = "" if scope == "conversation" else day_of(now, counted)
            key, since = Key(scope, subject, _period(scope, today)), _since(conn)
            found = [_total(row) for row in conn.rows(Q.tally, key)]
            if since is None:  # not all is in the tally
                found.append(_before(conn, key))
            elif not found and _period(scope, day_of(since, counted)) >= key.period:
                found = [_before(conn, key)]
            return key.period, Amount(*map(max, zip(*found, strict=True))) if found else Amount()

        return self._store.engine.read(run)

    def largest(self, *, limit: int = 5) -> tuple[tuple[str, Amount], ...]:
        """The conversations with the largest usage, reserved calls included."""
        found = self._rows(Q.largest, (limit,))
        return tuple((subject, Amount(int(nano_usd), int(tokens))) for subject, nano_usd, tokens in found)

    def spenders(self) -> tuple[str, ...]:
        """People with usage this month, or yesterday."""
        now = self._store.clock()
        since = min(day_of(now - DAY), f"{_month(day_of(now))}-01")
        return tuple(sorted(row[0] for row in self._rows(Q.spenders, (since, since))))

    def open_calls(self) -> tuple[OpenCall, ...]:
        """Calls that are reserved and not settled, oldest first."""
        young = self._store.clock() - self._store.limits.reservation_seconds

        def call(row: Row) -> OpenCall:
            call_id, person, conversation, model, task, nano_usd, tokens, made_at = row
            holder, amount = call_id.rpartition("/")[0], Amount(nano_usd, tokens)
            return OpenCall(person, conversation, model, task, amount, made_at, made_at < young, holder)

        return tuple(map(call, self._rows(Q.open)))

    def prune(self) -> int:
        """Remove earlier days, and the rows of lost calls; a conversation's tally is deleted with it."""
        now, limits = self._store.clock(), self._store.limits
        days = now - max(limits.budget_days * DAY, _LONGEST_MONTH)  # a month's tally counts to its end
        lost = now - max(limits.reservation_seconds, DAY)
        return self._store.engine.write(
            lambda conn: conn.run(Q.forget_days, (days,)) + conn.run(Q.forget_lost, (lost,))
        )


def day_of(moment: float, zone: str | None = None) -> str:
    """The date in an IANA zone; in this machine's zone when none is given or it is unknown here."""
    if zone:
        import zoneinfo
        from datetime import datetime

        try:
            return datetime.fromtimestamp(moment, zoneinfo.ZoneInfo(zone)).date().isoformat()
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # stored on a machine that knows more zones
            return day_of(moment)
    return time.strftime("%Y-%m-%d", time.localtime(moment))


def keep_zone(conn: Connection, person_id: str, zone: str | None, now: float) -> None:
    """A person's zone changes: the present day counts in the old `zone` until its end.

    Otherwise a person with a used-up limit could begin another day by naming another zone.
    """
    if _kept_zone(conn, person_id, now) is None:
        meta.put(conn, f"{_ZONE}{person_id}", json.dumps([zone, _end_of_day(now, zone)]))


def _zone_in(conn: Connection, person_id: str, zone: str | None, now: float) -> str | None:
    """The zone in which a person's day counts now; `zone` is the configured one."""
    kept = _kept_zone(conn, person_id, now)
    return zone if kept is None else kept[0]


def _kept_zone(conn: Connection, person_id: str, now: float) -> tuple[str | None, float] | None:
    written = meta.get(conn, f"{_ZONE}{person_id}")
    if written is None:
        return None
    zone, until = json.loads(written)
    return (zone, until) if now < until < now + _LONGEST_DAY else None


def _end_of_day(moment: float, zone: str | None) -> float:
    """When the day ends there; a binary search, because a day may have 23 or 25 hours."""
    today, start, end = day_of(moment, zone), moment, moment + _LONGEST_DAY
    while end - start > 0.5:
        middle = (start + end) / 2
        start, end = (middle, end) if day_of(middle, zone) == today else (start, middle)
    return end


def _zone_of(conn: Connection, person_id: str | None, now: float) -> str | None:
    """The zone in which a person's day counts; None for the machine's, and without a person."""
    if person_id is None:
        return None
    known = conn.rows(PEOPLE.get, (person_id,))
    return _zone_in(conn, person_id, known[0][3] if known else None, now)


def _since(conn: Connection) -> float | None:
    stored = meta.get(conn, COUNTED)
    return None if stored is None else float(stored)


def _begins_after(since: list[Key], key: Key) -> bool:
    """Whether the key's period began after the periods of `since`."""
    return any(one.scope == key.scope and one.period < key.period for one in since)


def _raise_to_usage(conn: Connection, key: Key) -> None:
    """Raise a tally to the accounted usage and the reserved calls, where it is less."""
    usd, tokens = map(sum, zip(_before(conn, key), _reserved(conn, key), strict=True))
    conn.run(Q.at_least, (usd, usd, tokens, tokens, *key))


def _keys(day: str, person_id: str | None, person_day: str, conversation_id: str | None) -> list[Key]:
    """The tallies of a call, in the order in which they are locked."""
    keys = [Key("day", "", day), Key("month", "", _month(day))]
    if person_id is not None:
        keys += (Key("person_day", person_id, person_day), Key("person_month", person_id, _month(person_day)))
    return keys if conversation_id is None else [*keys, Key("conversation", conversation_id, "")]


def _conversation_keys(conversations: Iterable[ConversationId]) -> list[Key]:
    return [Key("conversation", one, "") for one in conversations]


def _month(day: str) -> str:
    return day[:7]


def _period(scope: Scope, day: str) -> str:
    return _month(day) if scope.endswith("month") else day


def _shorter(answer: LongestAnswer | None, over: int, unit: Unit) -> int | None:
    """By how many tokens an answer must be shorter to save `over`; None when too little of it would remain."""
    if answer is None:
        return None
    each = 1 if unit == "tokens" else answer.nano_usd
    if not each:
        return None
    if over > _largest_saving(answer, unit):
        return None
    cut = math.ceil(over / each)
    while int(cut * each) < over:  # lost to floating point
        cut += 1
    return cut


def _largest_saving(answer: LongestAnswer | None, unit: Unit) -> int:
    """How much an answer of the minimum length saves."""
    spare = 0 if answer is None else answer.tokens - answer.least
    return int(spare * (1 if unit == "tokens" or answer is None else answer.nano_usd))


def _reserved(conn: Connection, key: Key) -> Amount:
    """What calls that have not ended may cost."""
    nano_usd, tokens = conn.rows(getattr(Q, f"reserved_{key.scope}"), key[1:])[0]
    return Amount(int(nano_usd or 0), int(tokens or 0))


def _before(conn: Connection, key: Key) -> Amount:
    usd, tokens = conn.rows(getattr(Q, f"before_{key.scope}"), key[1:])[0]
    return Amount(round((usd or 0) * NANO), int(tokens or 0))


def _total(state: Row) -> Amount:
    return Amount(int(state[0]), int(state[1]))


def _ignore_error(future: Any) -> None:
    """Ignore the future's error: nobody waits for it, and asyncio would warn about it."""
    if not future.cancelled():
        future.exception()
