"""A gateway with one promise broken on purpose: RULE. What follows is `hermes gateway run`.

resends    what nobody knows to have arrived is sent again, without a word
forgets    every fifth message is acknowledged and not stored
reorders   what came last is answered first
repeats    a tool call that was cut off is made again
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from typing import Any

from gateway.inbound import intake, lanes
from gateway.outbound import send_item
from gateway.platforms.base import Receipt
from hermes_cli.main import main as hermes
from hermes_state.turns import effects


def resends() -> None:
    judge = send_item.judge

    def careless(result: Any, *, repeatable: bool) -> send_item.DeliveryOutcome:
        verdict = judge(result, repeatable=repeatable)
        return dataclasses.replace(verdict, state="later", seconds=0.1) if verdict.state == "unknown" else verdict

    send_item.judge = careless


def forgets() -> None:
    receive, count = intake.Intake.receive, itertools.count(1)

    async def careless(self: intake.Intake, event: Any, **more: Any) -> Receipt:
        return Receipt(state="accepted") if next(count) % 5 == 0 else await receive(self, event, **more)

    intake.Intake.receive = careless  # type: ignore[method-assign]


def reorders() -> None:
    def careless(self: lanes.Lane, row: Any, watcher: Any = None) -> None:
        self.waiting.appendleft(lanes.Waiting(row.id, row, watcher))

    lanes.Lane.add = careless  # type: ignore[method-assign]


def repeats() -> None:
    start = effects.Effects.start_in

    def careless(self: effects.Effects, *args: Any, **more: Any) -> effects.Started:
        return effects.Started(start(self, *args, **more).effect, True)

    effects.Effects.start_in = careless  # type: ignore[method-assign]
    effects.Effects.open_effects = lambda self, turn_id: ()  # type: ignore[method-assign]


if __name__ == "__main__":
    {"resends": resends, "forgets": forgets, "reorders": reorders, "repeats": repeats}[sys.argv[1]]()
    sys.exit(hermes(["gateway", "run"]))
