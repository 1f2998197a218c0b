"""Errors of the store.

The first line of a class's docstring is its message; the command line prints it on one line together with
the next step. Nothing outside this package sees an exception of apsw or psycopg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_state.people.budgets import Scope, Unit


class StateError(HermesError):
    """The store could not do what was asked."""


class IntegrityError(StateError):
    """The store refuses a row that would contradict another."""


class SessionNotFound(StateError):
    """No such session."""

    default_hint = "`hermes sessions list` shows all sessions."


class InvalidValue(StateError, ValueError):
    """A value cannot be stored as given."""


class SessionEnded(StateError):
    """This part of the conversation was compressed; it continues elsewhere."""

    def __init__(self, session_id: str, tip: str) -> None:
        super().__init__(
            f"session {session_id} was compressed and continues as {tip}",
            hint=f"Write to {tip}.",
        )
        self.session_id = session_id
        self.tip = tip


class StaleFence(StateError):
    """Another turn took this conversation over; nothing was written."""


class ConversationHeld(StateError):
    """A turn is running in this conversation; nothing was changed."""

    default_hint = "Stop it first, or wait until it is done."


class TurnOver(StateError):
    """This turn has already ended; nothing was written."""

    def __init__(self, turn_id: str, state: str) -> None:
        super().__init__(f"turn {turn_id} has already ended ({state}); nothing was written")
        self.turn_id = turn_id
        self.state = state


class NotQueued(StateError):
    """These messages are not waiting any more; nothing was written."""


class OverLimit(StateError):
    """A spending limit would be passed; nothing was reserved."""

    def __init__(self, scope: Scope, unit: Unit, most: int, used: int, reserved: int, asked: int, period: str) -> None:
        super().__init__(f"the limit of {scope} ({unit}) would be passed: {used} + {asked} > {most}")
        self.scope, self.unit, self.period = scope, unit, period
        self.most, self.used, self.asked = most, used, asked
        self.reserved = reserved
        """The part of `used` that belongs to calls still running."""


class TooManyProcesses(StateError):
    """The person has as many background processes as the limits allow; nothing was stored."""


class TooManyChildren(StateError):
    """The conversation has as many running children as the limits allow; nothing was stored."""


class StoreBusy(StateError):
    """Another process held the database for too long; nothing was written."""


class StoreFull(StateError):
    """The disk is full; nothing was written."""


class StoreReadOnly(StateError):
    """The database cannot be written to."""


class StoreUnavailable(StateError):
    """The database cannot be reached."""


class StoreDamaged(StateError):
    """The database is damaged."""


class NotADatabase(StateError):
    """The file is not a database; it was left untouched."""


class FutureSchema(StateError):
    """The database was written by a newer version; it was left untouched."""


class OldSchema(StateError):
    """The database was made before 0.1; it was left untouched."""


class ForeignHome(StateError):
    """The database belongs to hermes-agent; it was left untouched."""


class NetworkFilesystem(StateError):
    """SQLite cannot be trusted on a network file system."""


class WriteLost(StateError):
    """The database file or its write-ahead log was replaced while it was open; the last write was not stored."""


class OutcomeUnknown(StateError):
    """The connection broke during the commit; nobody knows whether the write was stored."""


PASSING = (StoreBusy, StoreFull, StoreReadOnly, StoreUnavailable, WriteLost, OutcomeUnknown)
"""The errors of a store that is busy, full or away: the same write may succeed later."""


class HeadMoved(StateError):
    """Another writer changed the conversation meanwhile; nothing was changed."""


class IdTaken(StateError):
    """A session with this id exists already."""


class ArchiveRefused(StateError):
    """This archive cannot be read; nothing was changed."""


class BackupRefused(StateError):
    """This backup cannot be used; nothing was changed."""
