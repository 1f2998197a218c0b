"""Pairing: a stranger is told a code, and whoever runs this machine lets them in with it.

The code is eight of 32 symbols that nobody mistakes for one another, good for an hour. It is shown once, to the
stranger; the store keeps a salted hash. How many codes there may be, how often one person gets one and what wrong
codes lead to is in the table of limits and held by the store (`hermes_state.people.pairings`), for all processes
together. A stranger who gets no code gets no answer. A person who is let in is told in the chat of the code.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING

from gateway.outbound import notices
from hermes_config.errors import HermesError
from hermes_state.people.pairings import Approved, Refused, Request

if TYPE_CHECKING:
    from gateway.access.authorisation import Principal
    from hermes_state.people.people import Role
    from hermes_state.session_db import SessionDB

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
LENGTH = 8


class WrongCode(HermesError):
    """That code fits nobody who is waiting."""


class PairingLocked(HermesError):
    """Too many wrong codes: none is taken for a while."""


class Pairing:
    """Codes for strangers, and what becomes of them."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db

    def request(self, principal: Principal, display_name: str | None = None) -> str | None:
        """What to tell a stranger whom `decide` lets ask; None: nothing."""
        code, salt = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH)), secrets.token_hex(16)
        platform, account, native_id = principal.key
        asked = self._db.pairings.ask(
            platform=platform, account=account, native_id=native_id, name=display_name,
            salt=salt, code_hash=_hash(salt, code),
        )  # fmt: skip
        return reply(platform, code, self._db.limits.pairing_seconds) if asked == "issued" else None

    def approve(self, platform: str, code: str, *, role: Role | None = None) -> Approved:
        """Let in whoever was given this code. Raises `WrongCode` or `PairingLocked`."""
        typed = "".join(code.split()).replace("-", "").upper()

        def fits(salt: str, code_hash: str) -> bool:
            return hmac.compare_digest(_hash(salt, typed), code_hash)

        outcome = self._db.pairings.approve(platform, fits, role=role)
        if isinstance(outcome, Refused):
            raise self._refusal(platform, outcome)
        self._welcome(platform, typed)
        return outcome

    def _welcome(self, platform: str, code: str) -> None:
        """Owed to the chat, by whichever gateway runs; a code that was not said in one has none."""
        said = notices.words(reply(platform, code, self._db.limits.pairing_seconds))
        told = self._db.outbox.find(notices.key("pairing", said))
        if told is not None:
            self._db.outbox.enqueue(notices.about_item(told, "let_in", notices.let_in()))

    def _refusal(self, platform: str, refused: Refused) -> HermesError:
        if refused.locked_until is not None:
            minutes = max(1, round((refused.locked_until - self._db.clock()) / 60))
            at = time.strftime("%H:%M", time.localtime(refused.locked_until))
            return PairingLocked(
                f"too many wrong codes for {platform}: none is taken for {minutes} min", hint=f"Try again at {at}."
            )
        left = "1 more try" if refused.tries_left == 1 else f"{refused.tries_left} more tries"
        return WrongCode(
            f"that code fits nobody who is waiting on {platform}; {left}", hint="`hermes pairing list` shows who waits."
        )

    def revoke(self, platform: str, native_id: str, *, account: str | None = None) -> tuple[str, ...]:
        """Shut somebody out, from their next message on; under which of our accounts."""
        return self._db.pairings.revoke(platform=platform, native_id=native_id, account=account)

    def pending(self, platform: str | None = None) -> tuple[Request, ...]:
        return tuple(row for row in self._db.pairings.pending() if platform in (None, row.platform))

    def clear(self, platform: str | None = None) -> int:
        """Make all codes that were given out worthless; how many."""
        return self._db.pairings.clear(platform)


def reply(platform: str, code: str, seconds: int) -> str:
    """What the stranger reads, and can hand on."""
    return (
        "I do not know you yet. Whoever runs me can let you in with this command, on the machine I run on:\n\n"
        f"hermes pairing approve {platform} {code}\n\n"
        f"Your code is {code}. It is good for {max(1, seconds // 60)} minutes; do not give it to anybody else."
    )


def _hash(salt: str, code: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()
