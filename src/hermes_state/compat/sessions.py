"""Session rows as plug-ins of hermes-agent change, prune and look them up.

Production opens, ends and moves conversations through `conversations.ledger`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hermes_state import columns, log
from hermes_state.conversations import chain, delete, sessions
from hermes_state.conversations.delete import Deletion, Erased
from hermes_state.conversations.lists import Lists, shown
from hermes_state.conversations.sessions import Sessions
from hermes_state.conversations.titles import Titles, like
from hermes_state.errors import StateError
from hermes_state.ids import checked_id, is_possible_id
from hermes_state.maintenance import prune
from hermes_state.maintenance.prune import Chosen, Pruning
from hermes_state.search.search import IndexUnusable, MessageSearch
from hermes_state.storage import meta
from hermes_state.storage.base import Connection, in_transaction, scalar
from hermes_state.storage.statements import Queries, Statement

Q = Queries("compat_sessions")
_MOST = 100_000
_CLOCK_SLACK = 60.0  # clocks of machines that share a database differ by less


class SessionRows(Sessions, Titles, Lists, Deletion, Pruning, MessageSearch):
    """Sessions under the names that plug-ins call."""

    def ensure_session(self, session_id: str, source: str = "unknown", model: str | None = None, **kw: Any) -> str:
        return self.create_session(session_id, source, model=model, **kw)

    def reopen_session(self, session_id: str) -> None:
        self.engine.write(lambda conn: sessions.reopen(conn, session_id, self.clock()))

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a live row, or correct the reason of one that ended by accident."""
        if not is_possible_id(session_id):
            return False
        return self.engine.write(lambda conn: sessions.promote(conn, session_id, reason, self.clock()))

    def update_session_model(self, session_id: str, model: str | None) -> None:
        self._change(session_id, model=columns.clean(model))

    def update_session_meta(self, session_id: str, model_config_json: Any, model: str | None = None) -> None:
        named = {} if model is None else {"model": columns.clean(model)}
        self._change(session_id, model_config=columns.clean(columns.encode_json(model_config_json)), **named)

    def update_session_cwd(
        self, session_id: str, cwd: str | None, git_branch: str | None = None, git_repo_root: str | None = None
    ) -> None:
        """Set where the session works; an empty value changes nothing."""
        given = {"cwd": cwd, "git_branch": git_branch, "git_repo_root": git_repo_root}
        if told := {name: columns.clean(value) for name, value in given.items() if value}:
            self._change(session_id, **told)

    def update_session_billing_route(
        self, session_id: str, *, provider: str | None, base_url: str | None, billing_mode: str | None = None
    ) -> None:
        """Set who is paid for the session's calls. The system text names the provider, so it is dropped."""
        route = {"billing_provider": provider, "billing_base_url": base_url, "billing_mode": billing_mode}
        told = {name: columns.clean(value) for name, value in route.items()}
        self._change(session_id, system_prompt=None, **told)

    def record_gateway_session_peer(
        self,
        session_id: str,
        *,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        display_name: str | None = None,
        origin_json: str | None = None,
    ) -> None:
        peer = {
            "source": source, "user_id": user_id, "session_key": session_key, "chat_id": chat_id,
            "chat_type": chat_type, "thread_id": thread_id,
        }  # fmt: skip
        named = {"display_name": display_name, "origin_json": origin_json}
        peer |= {name: value for name, value in named.items() if value is not None}
        if session_id and session_key:
            self._change(session_id, **{name: columns.clean(value) for name, value in peer.items()})

    # -- compression locks: a lock names its holder and runs out by itself. One from the future was taken before the
    # clock was set back and counts as run out. Production holds the conversation's lease instead.

    def try_acquire_compression_lock(self, session_id: str, holder: str, ttl_seconds: float = 300) -> bool:
        """True when `holder` gets the lock. Without a working database nobody compresses: False."""
        now = self.clock()
        params = (session_id, holder, now, now + columns.seconds("ttl_seconds", ttl_seconds), now, now + _CLOCK_SLACK)
        try:
            return self._lock(session_id, holder, Q.acquire_lock, params)
        except StateError as error:
            log.warn("lock", "compression lock of %s not taken: %s", session_id, error)
            return False

    def refresh_compression_lock(self, session_id: str, holder: str, ttl_seconds: float = 300) -> bool:
        """Extend a lock that the holder still has; False when it was lost."""
        now = self.clock()
        params = (now, now + columns.seconds("ttl_seconds", ttl_seconds), session_id, holder, now, now + _CLOCK_SLACK)
        return self._lock(session_id, holder, Q.refresh_lock, params)

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Release the lock; another holder's lock stays."""
        self._lock(session_id, holder, Q.release_lock, (session_id, holder))

    def _lock(self, session_id: str, holder: str, statement: Statement, params: tuple[Any, ...]) -> bool:
        """Whether the statement changed a lock; an impossible id or holder changes none."""
        if not is_possible_id(session_id) or not is_possible_id(holder):
            return False
        return self.engine.write(lambda conn: conn.run(statement, params), single=True) == 1

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        now = self.clock()
        params = (session_id, now, now + _CLOCK_SLACK)
        holder: str | None = self.look(session_id, lambda conn: scalar(conn.rows(Q.holder_lock, params)), None)
        return holder

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        self._change(session_id, compression_failure_cooldown_until=None, compression_failure_error=None)

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
        return self.list_sessions_rich(
            source, limit=limit, offset=offset, include_children=True, include_archived=True, order_by_last_active=True
        )

    def search_sessions_by_id(self, query: str, limit: int = 20, include_archived: bool = True) -> list[dict[str, Any]]:
        """Exact before prefix before substring; the id of any segment finds its conversation."""

        def run(conn: Connection) -> list[dict[str, Any]]:
            rows = conn.execute(Q.by_id_part, (f"%{like(query)}%", _MOST)).dicts()
            rows.sort(key=lambda row: (row["id"] != query, not row["id"].startswith(query)))
            found: dict[str, dict[str, Any]] = {}
            for row in rows:
                tip = sessions.known(conn, chain.tip(conn, row["id"]))
                if include_archived or not tip["archived"]:
                    found.setdefault(tip["id"], shown(tip))
                if len(found) >= max(limit, 0):
                    break
            return list(found.values())

        return self.look(query, run, [], snapshot=True)

    def get_session_by_title(self, title: str) -> dict[str, Any] | None:
        return next(iter(self.sessions_by_title(title)), None)

    def delete_session(self, session_id: str, sessions_dir: str | Path | None = None) -> bool:
        return self.delete_sessions([session_id], sessions_dir) == 1

    def delete_session_if_empty(self, session_id: str, sessions_dir: str | Path | None = None) -> bool:
        """Delete a session that has no title, no messages and no children."""
        if not is_possible_id(session_id):
            return False

        def run(conn: Connection) -> Erased:
            sessions.fetch(conn, session_id, lock=True)
            return delete.remove_idle(self, conn, [row[0] for row in conn.rows(Q.if_empty, (session_id,))])

        erased = self.engine.write(run)
        delete.remove_files(self, erased.ids, sessions_dir)
        return erased.named == 1

    def get_meta(self, key: str) -> str | None:
        return self.look(key, lambda conn: meta.get(conn, key), None)

    def set_meta(self, key: str, value: str | None) -> None:
        checked_id(key, what="meta key")
        self.engine.write(lambda conn: meta.put(conn, key, value))

    # -- pruning and the search index: production prunes through `maintenance.retention` and `hermes sessions`

    @in_transaction
    def archive_sessions(
        self, conn: Connection, /, older_than_days: float | None = 90, source: str | None = None, **filters: Any
    ) -> int:
        """Hide from lists the sessions that `prune_sessions` would erase; returns their number."""
        chosen = self._candidates(older_than_days, source, {"archived": False, **filters})
        return conn.run(prune.Q.archive, (columns.texts(chosen.ids(conn)),))

    def count_empty_sessions(self) -> int:
        return len(self.engine.read(Chosen(prune.Q.empty, self._now(), []).ids))

    def delete_empty_sessions(self, sessions_dir: str | Path | None = None) -> int:
        """Erase ended sessions without messages that are not archived; returns their number."""
        return self._erase(Chosen(prune.Q.empty, self._now(), []), sessions_dir)

    def rebuild_fts(self) -> None:
        self.reindex()

    def optimize_fts(self) -> int:
        """Update the index and compact it fully; returns the number of indexes."""
        try:
            deadline = time.monotonic() + 60
            while self._index.feed(1.0, forget=True) and time.monotonic() < deadline:
                pass
            self._index.merge()
        except IndexUnusable:
            return 0
        return 1
