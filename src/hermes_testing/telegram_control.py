"""The control endpoint: what people do, and what a test asks, as verbs with JSON fields.

`POST /control/bot<token>/say {"name": "ada", "text": "hello"}` → `{"ok": true, "result": {…}}`. The verbs are the
public methods of `People`, and those below. Phones, other processes and `telegram_client` speak to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hermes_testing.telegram_answers import Json, bad_request
from hermes_testing.telegram_chats import World
from hermes_testing.telegram_faults import Fault, Faults
from hermes_testing.telegram_flood import FloodControl, FloodRules
from hermes_testing.telegram_journal import Journal
from hermes_testing.telegram_people import CannotDo, People


class Control:
    def __init__(self, world: World, people: People, flood: FloodControl, faults: Faults, journal: Journal) -> None:
        self._world = world
        self._people = people
        self._flood = flood
        self._faults = faults
        self._journal = journal
        self._verbs: dict[str, Callable[..., Any]] = {
            "person": people.person, "group": people.group, "topic": people.topic, "close_topic": people.close_topic,
            "say": people.say, "attach": people.attach, "edit": people.edit, "unsay": people.unsay,
            "press": people.press, "react": people.react, "block": people.block, "deactivate": people.deactivate,
            "expel_bot": people.expel_bot, "upgrade": people.upgrade, "inject": people.inject, "look": people.look,
            "settings": self.settings, "flood": self.flood, "faults": self.faults, "journal": self.journal,
            "updates": self.updates, "facts": self.facts,
        }  # fmt: skip

    def perform(self, verb: str, fields: Mapping[str, Any]) -> Any:
        """Raises `CannotDo`, or `TypeError` for fields the verb does not have."""
        if verb not in self._verbs:
            raise CannotDo(f"there is no verb {verb!r}")
        with self._world.lock:
            return self._verbs[verb](**fields)

    async def answer(self, verb: str, body: bytes) -> Any:
        """One request over HTTP. Raises `BotApiError` with what was wrong."""
        try:
            fields = json.loads(body or b"{}")
            if verb == "watch":
                return await self.watch(**fields)
            return self.perform(verb, fields)
        except (CannotDo, TypeError, ValueError) as error:
            raise bad_request(str(error)) from error

    async def watch(self, name: str, version: int, chat: int | None = None, within: float = 25.0) -> Json:
        """The chat, as soon as it differs from the version somebody knows."""
        deadline = asyncio.get_running_loop().time() + min(within, 30.0)
        while True:
            rung = self._world.bell.listen()
            seen: Json = self.perform("look", {"name": name, "chat": chat})
            left = deadline - asyncio.get_running_loop().time()
            if seen["version"] != version or left <= 0:
                return seen
            try:
                await asyncio.wait_for(rung.wait(), left)
            except TimeoutError:
                return seen

    def settings(self, reads_all: bool | None = None, hears_bots: bool | None = None) -> None:
        if reads_all is not None:
            self._world.reads_all_group_messages = reads_all
        if hears_bots is not None:
            self._world.hears_bots = hears_bots

    def flood(self, rules: Mapping[str, Any]) -> None:
        self._flood.rules = FloodRules(**rules)

    def faults(self, rules: list[Mapping[str, Any]], seed: int = 0) -> None:
        self._faults.set([Fault.of(rule) for rule in rules], seed=seed)

    def journal(self, method: str = "", after: int = 0) -> list[Json]:
        return [call.json() for call in self._journal.after(after, method)]

    def updates(self, after: int = 0) -> list[Json]:
        queue = self._world.updates
        return [asdict(update) for update in (*queue.done, *queue.pending) if update.id > after]

    def facts(self) -> Json:
        return {
            "calls": self._journal.total,
            "impatient": self._flood.impatient,
            "fired": [[rule.kind, fired] for rule, fired in zip(self._faults.rules, self._faults.fired, strict=True)],
            "pending": len(self._world.updates.pending),
        }
