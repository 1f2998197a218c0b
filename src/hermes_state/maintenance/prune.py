"""Getting rid of what nobody needs any more: old, ended or empty sessions, and the space they leave.

What is chosen here is chosen by a rule and not by a person who named it, so the rules are careful. Only ended sessions
count. Nothing goes that something still leads to: a route into the conversation, somebody at work on it or on what it
delegated, a newest segment that is open. A conversation is as old as its newest message, however long ago it began.
Rows go in short transactions, a batch each; a caller that is stopped half-way has pruned half and broken nothing.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from hermes_state import log
from hermes_state.columns import DAY, clean, texts
from hermes_state.conversations import delete
from hermes_state.conversations.delete import remove_files
from hermes_state.conversations.titles import like
from hermes_state.errors import InvalidValue, StateError
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, Store
from hermes_state.storage.sqlite import SqliteEngine
from hermes_state.storage.statements import Queries, Statement, to_postgresql
from hermes_state.turns import leases

Q = Queries("prune")

_GHOST_AGE = DAY
_LAST_RUN = "last_auto_prune"
# The filters, as fixed parts of a condition.
_EQUAL = {
    "source": "source", "end_reason": "end_reason", "provider": "billing_provider", "user_id": "user_id",
    "chat_id": "chat_id", "chat_type": "chat_type",
}  # fmt: skip
_LIKE = {"title_like": "title", "model_like": "model", "branch_like": "git_branch"}
_AMOUNTS = {
    "messages": "s.message_count",
    "tokens": "COALESCE(s.input_tokens, 0) + COALESCE(s.output_tokens, 0)",
    "cost": "COALESCE(s.actual_cost_usd, s.estimated_cost_usd, 0)",
    "tool_calls": "s.tool_call_count",
}
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # as SQLite's LIKE: ASCII only


class PruneFilters(TypedDict, total=False):
    """What a prune, its dry run and an archiving can be narrowed to. Texts are taken literally."""

    started_before: float | dt.datetime | None
    started_after: float | dt.datetime | None
    title_like: str | None
    model_like: str | None
    branch_like: str | None
    cwd_prefix: str | None
    end_reason: str | None
    provider: str | None
    user_id: str | None
    chat_id: str | None
    chat_type: str | None
    archived: bool | None
    min_messages: int | None
    max_messages: int | None
    min_tokens: int | None
    max_tokens: int | None
    min_cost: float | None
    max_cost: float | None
    min_tool_calls: int | None
    max_tool_calls: int | None


class Pruning(Store):
    """The part of `SessionDB` that keeps the store small."""

    def prune_sessions(
        self,
        older_than_days: float | None = 90,
        source: str | None = None,
        sessions_dir: str | Path | None = None,
        **filters: Unpack[PruneFilters],
    ) -> int:
        """Erase ended sessions; how many."""
        return self._erase(self._candidates(older_than_days, source, filters), sessions_dir)

    def list_prune_candidates(
        self, older_than_days: float | None = 90, source: str | None = None, **filters: Unpack[PruneFilters]
    ) -> list[dict[str, Any]]:
        """What `prune_sessions` would erase, oldest first; changes nothing."""
        chosen = self._candidates(older_than_days, source, filters)
        return self.engine.read(lambda conn: conn.execute(Q.rows, (texts(chosen.ids(conn)),)).dicts())

    def prune_empty_ghost_sessions(self, sessions_dir: str | Path | None = None) -> int:
        """Erase windows that were opened and closed again without a word, a day later."""
        return self._erase(Chosen(Q.ghosts, (self.clock() - _GHOST_AGE, *self._now()), []), sessions_dir)

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: str | Path | None = None,
    ) -> dict[str, Any]:
        """Prune when the last time is long enough ago: `{skipped, pruned, vacuumed}`; says `error`, never raises."""
        result: dict[str, Any] = {"skipped": False, "pruned": 0, "vacuumed": False}
        try:
            now, hours = self.clock(), min_interval_hours
            if not self.engine.write(lambda conn: meta.claim_run(conn, _LAST_RUN, now=now, hours=hours)):
                result["skipped"] = True
                return result
            result["pruned"] = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
            if vacuum and result["pruned"]:
                self.vacuum()
                result["vacuumed"] = True
        except (StateError, OSError) as error:
            log.warn("prune", "maintenance stopped: %s", error)
            result["error"] = str(error)
        return result

    def vacuum(self) -> None:
        """Give freed space back. On SQLite this also empties the log, which may still hold erased words."""
        if isinstance(self.engine, SqliteEngine):
            self.engine.with_writer(partial(_vacuum_sqlite, wait_ms=self.limits.write_wait_ms))
        else:
            from hermes_state.transfer import tables  # here, because most who open a store never vacuum

            # PostgreSQL does it outside a transaction; readers' connections are in none. Ours only: the database may
            # hold other people's tables.
            ours = ", ".join((*(table.name for table in tables.every()), *tables.LOCAL))
            self.engine.read(lambda conn: conn.run(f"VACUUM {ours}"))

    def _erase(self, chosen: Chosen, sessions_dir: str | Path | None) -> int:
        def step(conn: Connection, batch: list[str]) -> delete.Erased:
            return delete.remove(conn, chosen.still(conn, batch))

        total = 0
        ids = self.engine.read(chosen.ids)
        for at in range(0, len(ids), delete.BATCH):
            erased = self.engine.write(partial(step, batch=ids[at : at + delete.BATCH]))
            remove_files(self, erased.ids, sessions_dir)
            total += erased.asked
        return total

    def _candidates(self, older_than_days: float | None, source: str | None, filters: PruneFilters) -> Chosen:
        conditions = _conditions(filters)
        if source is not None:
            conditions.append(_condition("source", source))
        if older_than_days is not None:
            cutoff = self.clock() - _number("older_than_days", older_than_days) * DAY
            conditions.append((Q.older, (cutoff, cutoff)))
        return Chosen(Q.candidates, self._now(), conditions)

    def _now(self) -> tuple[float | None, float | None]:
        """The two moments of `loose`."""
        now = leases.shared_now(self)
        return now, now


_Condition = tuple[Statement, tuple[Any, ...]]


class Chosen:
    """A choice of sessions: a statement, and fixed conditions with their values."""

    def __init__(self, base: Statement, params: tuple[Any, ...], conditions: list[_Condition]) -> None:
        parts = [base, *(condition for condition, _ in conditions)]
        self._params = (*params, *(value for _, values in conditions for value in values))
        self._all = _joined([*parts, Q.in_order])
        self._still = _joined([*parts, Q.among, Q.in_order]).locked

    def ids(self, conn: Connection) -> list[str]:
        return [row[0] for row in conn.rows(self._all, self._params)]

    def still(self, conn: Connection, ids: list[str]) -> list[str]:
        """Those of `ids` that are chosen now, in the transaction that acts on them; held until it ends."""
        return [row[0] for row in conn.rows(self._still, (*self._params, texts(ids)))]


def _joined(parts: list[Statement]) -> Statement:
    return Statement(parts[0].name, " ".join(p.sqlite for p in parts), " ".join(p.postgresql for p in parts))


def _conditions(filters: Mapping[str, Any]) -> list[_Condition]:
    """The conditions that were asked for. A misspelt one must not silently widen the choice."""
    unknown = set(filters) - PruneFilters.__annotations__.keys()
    if unknown:
        known = ", ".join(PruneFilters.__annotations__)
        raise InvalidValue(f"no such filter: {', '.join(sorted(unknown))}", hint=f"Known: {known}.")
    return [_condition(name, value) for name, value in filters.items() if value is not None]


def _condition(name: str, value: Any) -> _Condition:
    if name == "archived":
        return _fragment("(CASE WHEN s.archived <> 0 THEN 1 ELSE 0 END) = ?"), (int(bool(value)),)
    if name.startswith("started_"):
        moment = _number(name, value.timestamp() if isinstance(value, dt.datetime) else value, negative=True)
        return _fragment(f"s.started_at {'<' if name == 'started_before' else '>'} ?"), (moment,)
    bound, _, amount = name.partition("_")
    if amount in _AMOUNTS:
        return _fragment(f"{_AMOUNTS[amount]} {'>=' if bound == 'min' else '<='} ?"), (_number(name, value),)
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a text, not {value!r:.60}")
    text = clean(value)
    if name == "cwd_prefix":
        return _fragment("substr(s.cwd, 1, CAST(? AS INTEGER)) = ?"), (len(text), text)
    if name in _LIKE:
        column = f"s.{_LIKE[name]}"
        # "C" folds ASCII only, as SQLite's LIKE does.
        statement = _fragment(f"{column} LIKE ? ESCAPE '\\'", f"lower({column} COLLATE \"C\") LIKE ? ESCAPE '\\'")
        return statement, (f"%{like(text.translate(_LOWER))}%",)
    return _fragment(f"s.{_EQUAL[name]} = ?"), (text,)


def _fragment(sqlite: str, postgresql: str = "") -> Statement:
    return Statement("prune.condition", f"AND {sqlite}", to_postgresql(f"AND {postgresql or sqlite}"))


def _number(name: str, value: object, *, negative: bool = False) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or (number < 0 and not negative):
        raise InvalidValue(f"{name} must be a number{'' if negative else ' from 0 up'}, not {value!r:.60}")
    return number


def _vacuum_sqlite(raw: Any, *, wait_ms: int) -> None:
    raw.set_busy_timeout(wait_ms)
    try:
        raw.execute("VACUUM")
        busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            log.warn("vacuum", "the log keeps old pages that a reader still needs")
    finally:
        raw.set_busy_timeout(0)
