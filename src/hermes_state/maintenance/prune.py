"""Removing old, ended or empty sessions, and freeing their space.

A rule chooses these sessions, not a person, so the rules are careful. Only ended sessions count. A conversation stays
if a route leads to it, if somebody works on it or on its delegations, or if its newest segment is open. A conversation
is as old as its newest message, however long ago it began. Rows are removed in short transactions, one per batch; an
interrupted run has removed some batches and broken nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_state import log
from hermes_state.columns import DAY, clean, number, texts
from hermes_state.conversations import delete
from hermes_state.conversations.delete import remove_files
from hermes_state.conversations.titles import like
from hermes_state.errors import InvalidValue, StateError
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, Store
from hermes_state.storage.sqlite import SqliteEngine, truncate_log
from hermes_state.storage.statements import Queries, Statement, to_postgresql
from hermes_state.turns import leases

Q = Queries("prune")

_GHOST_AGE = DAY
_LAST_RUN = "last_auto_prune"
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # like SQLite's LIKE: ASCII only
_TOKENS = "COALESCE(s.input_tokens, 0) + COALESCE(s.output_tokens, 0)"
_COST = "COALESCE(s.actual_cost_usd, s.estimated_cost_usd, 0)"
FILTERS = {
    "source": ("text", "s.source = ?"),
    "end_reason": ("text", "s.end_reason = ?"),
    "provider": ("text", "s.billing_provider = ?"),
    "user_id": ("text", "s.user_id = ?"),
    "chat_id": ("text", "s.chat_id = ?"),
    "chat_type": ("text", "s.chat_type = ?"),
    "cwd_prefix": ("prefix", "substr(s.cwd, 1, CAST(? AS INTEGER)) = ?"),
    "title_like": ("part", "s.title"),
    "model_like": ("part", "s.model"),
    "branch_like": ("part", "s.git_branch"),
    "archived": ("flag", "(CASE WHEN s.archived <> 0 THEN 1 ELSE 0 END) = ?"),
    "started_before": ("moment", "s.started_at < ?"),
    "started_after": ("moment", "s.started_at > ?"),
    "min_messages": ("amount", "s.message_count >= ?"),
    "max_messages": ("amount", "s.message_count <= ?"),
    "min_tokens": ("amount", f"{_TOKENS} >= ?"),
    "max_tokens": ("amount", f"{_TOKENS} <= ?"),
    "min_cost": ("amount", f"{_COST} >= ?"),
    "max_cost": ("amount", f"{_COST} <= ?"),
    "min_tool_calls": ("amount", "s.tool_call_count >= ?"),
    "max_tool_calls": ("amount", "s.tool_call_count <= ?"),
}
"""The filters of a prune, its dry run and an archiving: the kind of value, and a condition or a column."""


class Pruning(Store):
    """The part of `SessionDB` that keeps the store small."""

    def prune_sessions(
        self,
        older_than_days: float | None = 90,
        source: str | None = None,
        sessions_dir: str | Path | None = None,
        **filters: Any,
    ) -> int:
        """Erase ended sessions; returns their number."""
        return self._erase(self._candidates(older_than_days, source, filters), sessions_dir)

    def list_prune_candidates(
        self, older_than_days: float | None = 90, source: str | None = None, **filters: Any
    ) -> list[dict[str, Any]]:
        """The sessions that `prune_sessions` would erase, oldest first; changes nothing."""
        chosen = self._candidates(older_than_days, source, filters)
        return self.engine.read(lambda conn: conn.execute(Q.rows, (texts(chosen.ids(conn)),)).dicts())

    def prune_empty_ghost_sessions(self, sessions_dir: str | Path | None = None) -> int:
        """Erase sessions that were opened and closed without a message, a day later."""
        return self._erase(Chosen(Q.ghosts, (self.clock() - _GHOST_AGE, *self._now()), []), sessions_dir)

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: str | Path | None = None,
    ) -> dict[str, Any]:
        """Prune if the last run is long enough ago: `{skipped, pruned, vacuumed}`; reports an `error`, never raises."""
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
        """Release freed space. On SQLite this also truncates the log, which may still contain erased text."""
        if isinstance(self.engine, SqliteEngine):
            self.engine.with_writer(partial(_vacuum_sqlite, wait_ms=self.limits.write_wait_ms))
        else:
            from hermes_state.transfer import tables  # most programs that open a store never vacuum

            # PostgreSQL vacuums outside a transaction, as readers' connections are. Only our tables: the database may
            # hold other people's.
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
            total += erased.named
        return total

    def _candidates(self, older_than_days: float | None, source: str | None, filters: Mapping[str, Any]) -> Chosen:
        conditions = _conditions(filters)
        if source is not None:
            conditions.append(_condition("source", source))
        if older_than_days is not None:
            cutoff = self.clock() - _amount("older_than_days", older_than_days) * DAY
            conditions.append((Q.older, (cutoff, cutoff)))
        return Chosen(Q.candidates, self._now(), conditions)

    def _now(self) -> tuple[float | None, float | None]:
        """The current time, once for each place that the statement `loose` compares with it."""
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
        """Those of `ids` that are still chosen, in the transaction that acts on them; locked until it ends."""
        return [row[0] for row in conn.rows(self._still, (*self._params, texts(ids)))]


def _joined(parts: list[Statement]) -> Statement:
    return Statement(parts[0].name, " ".join(p.sqlite for p in parts), " ".join(p.postgresql for p in parts))


def _conditions(filters: Mapping[str, Any]) -> list[_Condition]:
    """The requested conditions. An unknown filter is an error: ignoring it would widen the choice."""
    if unknown := filters.keys() - FILTERS:
        known = ", ".join(FILTERS)
        raise InvalidValue(f"no such filter: {', '.join(sorted(unknown))}", hint=f"Known: {known}.")
    return [_condition(name, value) for name, value in filters.items() if value is not None]


def _condition(name: str, value: Any) -> _Condition:
    kind, sql = FILTERS[name]
    if kind == "flag":
        return _fragment(sql), (int(bool(value)),)
    if kind == "moment":
        return _fragment(sql), (number(name, value.timestamp() if isinstance(value, dt.datetime) else value),)
    if kind == "amount":
        return _fragment(sql), (_amount(name, value),)
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a text, not {value!r:.60}")
    text = clean(value)
    if kind == "part":
        # Texts match literally. "C" folds ASCII only, as SQLite's LIKE does.
        statement = _fragment(f"{sql} LIKE ? ESCAPE '\\'", f"lower({sql} COLLATE \"C\") LIKE ? ESCAPE '\\'")
        return statement, (f"%{like(text.translate(_LOWER))}%",)
    return _fragment(sql), (len(text), text) if kind == "prefix" else (text,)


def _fragment(sqlite: str, postgresql: str = "") -> Statement:
    return Statement("prune.condition", f"AND {sqlite}", to_postgresql(f"AND {postgresql or sqlite}"))


def _amount(name: str, value: object) -> float:
    return number(name, value, least=0, what="a number from 0 up")


def _vacuum_sqlite(raw: Any, *, wait_ms: int) -> None:
    raw.set_busy_timeout(wait_ms)
    try:
        raw.execute("VACUUM")
    finally:
        raw.set_busy_timeout(0)
    if not truncate_log(raw, wait_ms):
        log.warn("vacuum", "the log keeps old pages that a reader still needs")
