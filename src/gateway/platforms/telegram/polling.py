"""Polls Telegram for updates.

An update is acknowledged by asking for the ones after it, so the offset moves past an update only when `take` has
returned for it and for all before it: its message is stored, or was refused, or the update makes no sense. When `take`
raises, everything from there on is asked for again after a few seconds. Within an answer updates are taken by their
number, whatever order they came in; one that comes twice is harmless, because the inbox knows it.

The offset is a durable cursor: it is stored in the transaction that stores the message it stands behind, and a new
process asks from there. One that has not moved for days is not used, because Telegram counts anew from a random number
after a week without updates, and would forget everything below an offset that is too high.

A message was sent after the moment when Telegram had nothing more for us, whatever the clock of this machine says about
its date: so a clock that is hours ahead makes no message old.

Only a refused token ends the polling. After any other error the next try comes within 15 seconds, also when Telegram
asks for a longer pause: a person may want to stop something, and asking sends nothing to any chat.
When another program polls with the same token, the error says so, and polling goes on when that program has stopped.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway.platforms.base import Health, pause_after
from gateway.platforms.telegram import errors, updates
from gateway.platforms.telegram.updates import Malformed
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from gateway.platforms.base import Cursor, CursorMove
    from gateway.platforms.telegram.client import BotClient

log = logging.getLogger("hermes.gateway")

POLL_SECONDS = 25
LONGEST_PAUSE = 12.5  # 15 with what `_pause` adds at most
NOT_TAKEN_PAUSE = 4.0
CONFLICT_PAUSE = 12.0
_OLDEST_OFFSET = 5 * 86_400.0
_AT_ONCE = 100
"""Updates in one answer at most (`BotClient.updates`); with fewer there are no more."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that nobody sets, and that goes on while the machine sleeps."""

CONFLICT = "another program asks for this bot's messages, too; stop it, or give it a bot of its own"
NOT_TAKEN = "messages are not taken from Telegram: {}"
WEBHOOK = "a webhook is set for this bot, so Telegram gives its messages away; hermes gateway setup {} removes it"


class Poller:
    """Polls, gives each update to `take`, and remembers the last success."""

    def __init__(
        self,
        line: BotClient,
        take: Callable[[dict[str, Any], CursorMove | None], Awaitable[None]],
        *,
        cursor: Cursor,
        name: str,
        seconds: int = POLL_SECONDS,
    ) -> None:
        self._line, self._name = line, name
        self._take = take
        self._cursor = cursor
        self._seconds = seconds
        self._offset: int | None = None
        self._failures = 0
        self._nothing_at: float | None = None
        """A time (`_CLOCK`) at which Telegram had nothing that is not taken by now."""
        self._not_taken = ""
        """Why a message was not taken the last time, for the operator."""
        self.health = Health(problem="not connected yet")

    async def run(self) -> None:
        """Poll until cancelled, or until Telegram refuses the token."""
        self._offset = await self._stored_offset()
        while True:
            asked = time.clock_gettime(_CLOCK)
            try:
                # After trouble the first answer is not waited for: it is the evidence that all is well again.
                seconds = 0 if self.health.problem else self._seconds
                found = await self._line.updates(offset=self._offset, seconds=seconds, kinds=updates.ALLOWED)
            except Exception as error:  # noqa: BLE001 - boundary: the platform's library and network
                if self._is_refusal(error):
                    return
                await self._pause_after(error)
                continue
            self.health = Health(last_contact=time.time(), problem=self._not_taken)
            if not found:
                # What lay below the offset is forgotten there, and numbers may start anew after a quiet week.
                self._offset = None
            taken = await self._take_all(found)
            self._failures = 0 if taken else self._failures + 1
            if taken and len(found) < _AT_ONCE:
                self._nothing_at = asked
            self.health = replace(self.health, problem=self._not_taken)
            if self._failures:  # the store is away, which costs a try next to nothing
                await asyncio.sleep(min(self._pause(), NOT_TAKEN_PAUSE))

    def sent_at(self, said: datetime) -> datetime:
        """When a message that just came was sent, by this machine's clock; `said` is Telegram's date."""
        if self._nothing_at is None:
            return said
        return max(said, datetime.now(UTC) - timedelta(seconds=time.clock_gettime(_CLOCK) - self._nothing_at))

    async def _stored_offset(self) -> int | None:
        try:
            found = await self._cursor.read()
        except HermesError as error:  # without it a few come again, which the inbox knows
            log.warning("the offset is not known: %s", error.one_line(), extra={"action": "telegram.no_offset"})
            return None
        if found is None or not 0 <= time.time() - found.moved_at < _OLDEST_OFFSET or not found.value.isdecimal():
            return None
        return int(found.value)

    async def _take_all(self, found: list[Any]) -> bool:
        """Every update in the order of their numbers; False when one was not taken, or none can be acknowledged.

        Behind one that was not taken the other chats go on, their own chat waits, and the offset stays.
        """
        waiting: set[object] = set()
        problem = ""
        numbered = self._numbered(found)
        for number, update in numbered:
            chat = updates.chat_of(update)
            if chat in waiting:
                continue
            behind = max(self._offset or 0, number + 1)
            try:
                await self._take(update, None if waiting else self._cursor.at(str(behind)))
            except Malformed as error:
                facts = {"action": "telegram.malformed", "update_id": number}
                log.warning("update %d was skipped: %s", number, error, extra=facts)
            except Exception as error:  # boundary: what takes a message in may fail in any way
                facts = {"action": "telegram.not_taken", "update_id": number}
                said = error.one_line() if isinstance(error, HermesError) else type(error).__name__
                problem = NOT_TAKEN.format(error.what if isinstance(error, HermesError) else said)
                trace = None if isinstance(error, HermesError) else error
                log.error(
                    "update %d was not taken and is asked for again: %s", number, said, exc_info=trace, extra=facts
                )
                waiting.add(chat)
            if not waiting:
                self._offset = behind
        self._not_taken = problem
        return not waiting and (bool(numbered) or not found)

    @staticmethod
    def _numbered(found: list[Any]) -> list[tuple[int, dict[str, Any]]]:
        numbered: list[tuple[int, dict[str, Any]]] = []
        for update in found:
            try:
                numbered.append((updates.update_id(update), update))
            except Malformed as error:
                log.warning("an update was skipped: %s", error, extra={"action": "telegram.malformed"})
        return sorted(numbered, key=lambda pair: pair[0])

    def _is_refusal(self, error: Exception) -> bool:
        from telegram.error import InvalidToken

        if not isinstance(error, InvalidToken):
            return False
        problem = errors.refused(self._name)
        self.health = Health(last_contact=self.health.last_contact, problem=problem)
        log.error("%s", problem, extra={"action": "telegram.refused"})
        return True

    async def _pause_after(self, error: Exception) -> None:
        from telegram.error import Conflict, RetryAfter

        said = errors.said(error, self._line.token)
        self._failures += 1
        if isinstance(error, Conflict):
            problem = WEBHOOK.format(self._name) if "webhook" in said.lower() else CONFLICT
            pause = CONFLICT_PAUSE * random.uniform(0.8, 1.2)
        elif isinstance(error, RetryAfter):
            problem, pause = "Telegram asks for a pause", min(errors.retry_after(error), LONGEST_PAUSE)
        else:
            problem, pause = errors.unreachable(error, self._line), self._pause()
        self.health = Health(last_contact=self.health.last_contact, problem=problem, retry_at=time.time() + pause)
        log.warning("%s; again in %.0f s", problem, pause, extra={"action": "telegram.poll_failed"})
        await asyncio.sleep(pause)

    def _pause(self) -> float:
        """One second, two, four … up to 15, each a little off, so that many do not come back at once."""
        return pause_after(self._failures, first=1.0, longest=LONGEST_PAUSE, spread=0.2)
