"""Pairing: a stranger gets a code, with which the owner of this machine can give them access.

A code has eight of 32 symbols that nobody mistakes for one another, and is valid for an hour. It is shown once, to the
stranger; the store keeps a salted hash. The table of limits bounds the number of codes, how often one person gets one,
and wrong codes; the store (`hermes_state.people.pairings`) enforces that for all processes together. A stranger who
gets no code gets no answer. A person who gets access is told in the chat of the code.
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
    """No waiting request has this code."""


class PairingLocked(HermesError):
    """Too many wrong codes: no code is accepted for a while."""


class Pairing:
    """Issues, approves and revokes pairing codes."""

    def __init__(self, db: SessionDB) -> None:
        self._db = db

    def request(self, principal: Principal, display_name: str | None = None) -> str | None:
        """The reply with a code to a stranger who may ask for one; None: no reply."""
        code, salt = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH)), secrets.token_hex(16)
        platform, account, native_id = principal.key
        asked = self._db.pairings.ask(
            platform=platform, account=account, native_id=native_id, name=display_name,
            salt=salt, code_hash=_hash(salt, code),
        )  # fmt: skip
        return reply(platform, code, self._db.limits.pairing_seconds) if asked == "issued" else None

    def approve(self, platform: str, code: str, *, role: Role | None = None) -> Approved:
        """Give access to the person with this code. Raises `WrongCode` or `PairingLocked`."""
        typed = "".join(code.split()).replace("-", "").upper()

        def fits(salt: str, code_hash: str) -> bool:
            return hmac.compare_digest(_hash(salt, typed), code_hash)

        outcome = self._db.pairings.approve(platform, fits, role=role)
        if isinstance(outcome, Refused):
            raise self._refusal(platform, outcome)
        self._welcome(platform, typed)
        return outcome

    def _welcome(self, platform: str, code: str) -> None:
        """Tell the chat of the code that its person has access; any running gateway sends it."""
        said = notices.words(reply(platform, code, self._db.limits.pairing_seconds))
        told = self._db.outbox.find(notices.key("pairing", said))
        if told is not None:
            self._db.outbox.enqueue(notices.about_item(told, "let_in", notices.let_in()))

    def _refusal(self, platform: str, refused: Refused) -> HermesError:
        if refused.locked_until is not None:
            minutes = max(1, round((refused.locked_until - self._db.clock()) / 60))
            at = time.strftime("%H:%M", time.localtime(refused.locked_until))
            return PairingLocked(
                f"too many wrong codes for {platform}: no code is accepted for {minutes} min",
                hint=f"Try again at {at}.",
            )
        left = "1 more try" if refused.tries_left == 1 else f"{refused.tries_left} more tries"
        return WrongCode(
            f"no open request on {platform} has this code; {left}",
            hint="hermes pairing list shows the open requests.",
        )

    def revoke(self, platform: str, native_id: str, *, account: str | None = None) -> tuple[str, ...]:
        """Revoke a person's access from their next message on; returns our accounts for which it held."""
        return self._db.pairings.revoke(platform=platform, native_id=native_id, account=account)

    def pending(self, platform: str | None = None) -> tuple[Request, ...]:
        return tuple(row for row in self._db.pairings.pending() if platform in (None, row.platform))

    def clear(self, platform: str | None = None) -> int:
        """Cancel all issued codes; returns how many."""
        return self._db.pairings.clear(platform)


def reply(platform: str, code: str, seconds: int) -> str:
    """The message to the stranger, who passes it on to the owner."""
    return (
        "I do not know you yet. My owner can give you access with this command, on the machine I run on:\n\n"
        f"hermes pairing approve {platform} {code}\n\n"
        f"Your code is {code}. It is valid for {max(1, seconds // 60)} minutes; do not give it to anybody else."
    )


def _hash(salt: str, code: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()
