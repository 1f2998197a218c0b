"""`Resolver`: finds the conversation of a message's source.

`Resolver.at_rest` suffices for nearly every message: one indexed read shows that the route leads to a live segment and
that no rule is due. Otherwise `Resolver.transaction` is one transaction of the ledger, which moves the route to the
newest segment, applies the reset rule, finds the conversation of a route that was lost, or opens a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any

from gateway.config import GatewayConfig, Platform, SessionResetPolicy
from gateway.routes import keys, reset_policy
from gateway.routes.source import SessionEntry, SessionSource, Written, instant, local_time
from hermes_state.conversations.ledger import Handle, Resolved, RouteState, Search
from hermes_state.conversations.routes import Route, Routes, Sender
from hermes_state.ids import ConversationId, SessionKey
from hermes_state.session_db import SessionDB
from hermes_state.storage.base import Connection

BY_ITSELF = ("idle", "daily", "suspended", "resume_pending_expired")


class RouteRules:
    """The keys and reset rules of a gateway's configuration, without a store."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config

    def busy(self, session_key: str) -> bool:
        """Whether a process that the conversation started still runs."""
        return False

    def key(self, source: SessionSource) -> SessionKey:
        """The route of a source, by this gateway's settings."""
        return keys.build_session_key(source, *self._flags(source))

    def aliases(self, source: SessionSource) -> tuple[SessionKey, ...]:
        return keys.aliases(source, *self._flags(source))

    def is_shared(self, source: SessionSource) -> bool:
        """Whether several people share the conversation of this route."""
        group, thread, _ = self._flags(source)
        return keys.is_shared_multi_user_session(source, group, thread)

    def _flags(self, source: SessionSource) -> tuple[bool, bool, str | None]:
        config = self.config
        profile = source.profile if config.multiplex_profiles else None
        return config.group_sessions_per_user, config.thread_sessions_per_user, profile

    def policy(self, platform: Platform | None, chat_type: str | None) -> SessionResetPolicy:
        return self.config.get_reset_policy(platform, chat_type)

    def reason(
        self,
        policy: SessionResetPolicy,
        key: str,
        entry: Mapping[str, Any],
        used_at: float,
        now: float,
        zone: Callable[[], tzinfo],
        *,
        at_message: bool,
    ) -> reset_policy.Reason | None:
        """Why the route's conversation has expired, or None. `entry` is the stored form.

        `at_message`: a message has come, so the marks in the entry count as well.
        """
        if at_message and entry.get("suspended"):
            return "suspended"
        if policy.mode == "none" or self.busy(key):
            return None
        reason = reset_policy.due(policy, used_at, now, zone)
        if reason is None and at_message and entry.get("resume_pending"):
            marked = _marked_at(entry)
            if marked is not None and now > marked + self.config.resume_window:
                return "resume_pending_expired"
        return reason

    def fresh_entry(self, source: SessionSource | None, key: str, now: float, **marks: Any) -> SessionEntry:
        """The entry of a new conversation of this route."""
        moment = local_time(now)
        return SessionEntry(
            key,
            "",
            moment,
            moment,
            origin=source,
            display_name=None if source is None else source.chat_name,
            platform=None if source is None else source.platform,
            chat_type="dm" if source is None else source.chat_type,
            **marks,
        )


class Resolver:
    """Resolves routes in a store."""

    def __init__(self, db: SessionDB, routes: Routes, rules: RouteRules) -> None:
        self._db = db
        self._routes = routes
        self._rules = rules

    def at_rest(self, source: SessionSource, key: str) -> Resolved | None:
        """The route's conversation if nothing has to change, else None."""
        row = self._routes.look(key, self._sender(source))
        if row is None or row.root_id is None or row.session_id is None or row.ended_at is not None:
            return None
        if row.of_others:
            return None
        policy = self._rules.policy(source.platform, source.chat_type)
        now, entry = self._db.clock(), row.entry
        if self._rules.reason(
            policy, key, entry, row.used_at, now, lambda: self.zone(source, row.zone), at_message=True
        ):
            return None
        handle = Handle(ConversationId(row.root_id), row.session_id)
        return Resolved(handle, entry=entry, message_count=row.message_count)

    def leads_to_others(self, source: SessionSource, key: str) -> bool:
        row = self._routes.look(key, self._sender(source))
        return row is not None and row.of_others

    def transaction(
        self, source: SessionSource, key: str, said: Iterable[Mapping[str, Any]] = ()
    ) -> Callable[[Connection], Resolved | None]:
        """Resolve the route in a transaction; never None in the end, since `source` is known."""
        now = self._db.clock()
        row = self._routes.look(key)
        policy = self._rules.policy(source.platform, source.chat_type)

        def due(state: RouteState) -> str | None:
            last_message = state.session["last_active"] if state.session["message_count"] else 0.0
            used = max(state.updated_at, last_message)
            zone = None if row is None else row.zone
            return self._rules.reason(
                policy, key, state.entry, used, now, lambda: self.zone(source, zone), at_message=True
            )

        return self._db.ledger.resolving(
            key,
            scope=self._routes.scope,
            reset=due,
            source=str(source.platform.value),
            fields=self.peer(source),
            fresh=lambda why, before: self._fresh(source, key, now, why, before),
            search=self._search(source, key, now),
            sender=self._sender(source),
            said=said,
        )

    def _sender(self, source: SessionSource) -> Sender:
        local = source.platform is Platform.LOCAL
        native_id = "owner" if local else "" if source.user_id is None else str(source.user_id)
        return Sender(source.chat_type, str(source.platform.value), native_id)

    def peer(self, source: SessionSource) -> dict[str, Any]:
        """The columns of a session row that name its chat; a shared group has no owner."""
        return {
            "user_id": None if self._rules.is_shared(source) else source.user_id,
            "chat_id": source.chat_id,
            "chat_type": source.chat_type,
            "thread_id": source.thread_id,
            "display_name": source.chat_name,
            "origin_json": json.dumps(source.to_dict(), ensure_ascii=False),
            "profile_name": source.profile,
        }

    def zone(self, source: SessionSource | None, known: str | None = None) -> tzinfo:
        """The zone of the chat's person, else the configured one, else the system's."""
        if known is None and source is not None and source.user_id and not self._rules.is_shared(source):
            person = self._db.people.find(platform=str(source.platform.value), native_id=source.user_id)
            known = None if person is None else person.zone
        return reset_policy.zone_of(known, self._rules.config.timezone)

    def due_rows(self, now: float) -> Iterator[Route]:
        """Routes whose conversation has expired and is not marked so yet, oldest first."""
        config = self._rules.config
        policies = (config.default_reset_policy, *config.reset_by_type.values(), *config.reset_by_platform.values())
        moments = [moment for policy in policies if (moment := reset_policy.latest_due(policy, now)) is not None]
        pages = self._routes.unused(max(moments), still_open=True) if moments else ()
        return (row for page in pages for row in page if self._is_due(row, now))

    def _is_due(self, row: Route, now: float) -> bool:
        entry = row.entry
        policy = self._rules.policy(Platform.find(entry.get("platform")), entry.get("chat_type") or "dm")
        zone = reset_policy.zone_of(row.zone, self._rules.config.timezone)
        reason = self._rules.reason(policy, row.session_key, entry, row.used_at, now, lambda: zone, at_message=False)
        return reason is not None

    def _fresh(
        self, source: SessionSource, key: str, now: float, why: str | None, before: RouteState | None
    ) -> Written:
        by_itself = why in BY_ITSELF
        active = by_itself and before is not None and _had_activity(before)
        entry = self._rules.fresh_entry(
            source,
            key,
            now,
            was_auto_reset=by_itself,
            auto_reset_reason=why if by_itself else None,
            reset_had_activity=active,
        )
        return entry.to_dict()

    def _search(self, source: SessionSource, key: str, now: float) -> Search:
        def is_ours(entry: Mapping[str, Any], session: Mapping[str, Any] | None) -> bool:
            origin = entry.get("origin") or _decoded(None if session is None else session["origin_json"])
            if not origin and session is not None:
                origin = {name: session[name] for name in ("chat_id", "chat_type", "thread_id", "user_id")}
                origin["platform"] = session["source"]
            try:
                return bool(origin) and self._rules.key(SessionSource.from_dict(origin)) == key
            except (KeyError, ValueError):
                return False

        entry = self._rules.fresh_entry(source, key, now).to_dict()
        return Search(str(source.platform.value), self._rules.aliases(source), is_ours, entry)


def _had_activity(before: RouteState) -> bool:
    session = before.session
    tokens = (before.entry.get("last_prompt_tokens"), session["input_tokens"], session["output_tokens"])
    return any(isinstance(count, int) and count > 0 for count in tokens)


def _marked_at(entry: Mapping[str, Any]) -> float | None:
    text = entry.get("last_resume_marked_at")
    if not isinstance(text, str):
        return None
    try:
        return instant(datetime.fromisoformat(text))
    except ValueError:
        return None


def _decoded(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
