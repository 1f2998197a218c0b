"""A storm: many chats write to a gateway that is killed again and again while its platform drops, doubles and reorders.

    with Storm(chats=50, seed=7) as storm:
        storm.rage(kills=8)
        history = storm.settle()
        assert history.violations() == []

Each life of the gateway ends with SIGKILL at a random moment from its very start on: while it imports, takes up what
was left, runs tools, streams. Then the faults end, a last gateway brings everything to its end, everybody writes once
more, and `tests.support.history` judges. `python -m tests.support.storm --kills 200` prints the history.

`trouble(fault, seconds)` takes the store away (`tests.support.store_faults`) while people write on: one gateway lives
through it; half-way it is killed, and the next ones begin while there is no store, as a supervisor starts them.

The dice are seeded, but processes are not: the same seed gives the same faults and lives, not the same instants.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.support.history import LABEL, History, Labelled
from tests.support.store_faults import NEEDS_MOUNT, SmallDisk, locked, may_mount, stopped
from tests.support.stores import TestPostgres

from hermes_state import SessionDB
from hermes_testing.scenario import Scenario
from hermes_testing.scripted.model import ScriptedModel, ScriptedRequest, Step, call, say
from hermes_testing.telegram.client import FakePerson
from hermes_testing.telegram.faults import USUAL, Fault, FloodRules
from hermes_testing.telegram.server import FakeTelegram

FAULTS = (
    Fault("drop_before", method="send*", chance=0.02),
    Fault("drop_after", method="send*", chance=0.02),
    Fault("drop_before", method="edit*", chance=0.02),
    Fault("drop_after", method="edit*", chance=0.02),
    Fault("error", method="*Message*", chance=0.01, status=502),
    Fault("flood", method="*Message*", chance=0.01, seconds=1),
    Fault("delay", chance=0.05, seconds=0.1),
    Fault("drop_after", method="getUpdates", chance=0.02),
    Fault("duplicate", chance=0.15),
    Fault("reorder", chance=0.3),
    Fault("redeliver", chance=0.15),
    Fault("malformed", chance=0.02),
)
KINDS = ("plain", "plain", "plain", "tool", "tool", "story")
MODES = ("queue", "queue", "steer", "interrupt")
SETTLE_SECONDS = 90.0
SUPERVISED_SECONDS = 2.0
"""`RestartSec` of the unit."""
CANNOT_STORE = "I cannot store messages right now"
_OWED = ("draft", "pending", "sending")
T = TypeVar("T")
_LEFT_BEHIND = "left-behind.txt"
_STORY = "and then, as nobody had expected, the river went on by itself, "


def improvise(request: ScriptedRequest) -> Step:
    """Answers by label: at once, after a tool that leaves the label behind, or as a story that takes its time."""
    text = request.last_user_text
    label = LABEL.findall(text)[-1] if LABEL.search(text) else "#0-0"
    kind = next((kind for kind in ("tool", "story") if kind in text), "plain")
    if kind == "tool" and request.messages[-1]["role"] == "user":
        command = f"sleep 0.05; echo '{label}' >> {_LEFT_BEHIND}; sleep 0.2"  # a kill may find it done and not noted
        return say("I look. ", calls=[call("terminal", {"command": command})])
    if kind == "story":
        return say(f"Answer to {label}: once upon a time ", *([_STORY] * 20), "it rained.", pace=0.04)
    return say(f"Answer to {label}", ".", delay=0.02)


@dataclass(frozen=True, slots=True)
class Life:
    """One gateway, from its start to its death."""

    number: int
    seconds: float
    mode: str
    waiting: int
    """Messages the platform still held when it died."""
    open_rows: int
    owed: int
    turns: int
    """How many it was in the middle of."""

    def line(self) -> str:
        return (
            f"life {self.number:>3}  {self.seconds:5.2f} s  {self.mode:<9}  then: {self.waiting:>3} not handed over, "
            f"{self.open_rows:>3} without an outcome, {self.owed:>3} owed"
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """A time without a store."""

    name: str
    seconds: float
    written: int
    """Messages that people wrote meanwhile."""
    told: int
    """Chats that were told that nothing can be stored."""
    starts: int
    """Gateways that began meanwhile."""
    back: float
    """Seconds from its end to the first message that was stored."""
    settled: float
    """Seconds from its end until nothing was owed any more."""

    def line(self) -> str:
        return (
            f"{self.name} for {self.seconds:.0f} s: {self.written} messages meanwhile, {self.told} chats told, "
            f"{self.starts} gateways begun; stored again in {self.back:.1f} s, all answered in {self.settled:.1f} s"
        )


class Storm:
    """The chats, the gateway, the faults. Use it as a context manager."""

    def __init__(
        self,
        *,
        chats: int = 50,
        seed: int = 0,
        faults: Sequence[Fault] = FAULTS,
        modes: Sequence[str] = MODES,
        kinds: Sequence[str] = KINDS,
        command: Sequence[str] | None = None,
        home: Path | None = None,
        database_url: str | None = None,
        config: Mapping[str, Any] | None = None,
        pace: float = 20.0,
        flood: FloodRules = USUAL,
    ) -> None:
        """`database_url`: a PostgreSQL store instead of the home's own. `pace`: how often in a second somebody writes.

        With the usual flood control a chat gets an answer a second: `settle` waits for what is written beyond that.
        """
        self._dice = random.Random(seed)
        self._modes, self._kinds, self._pace = modes, kinds, pace
        self.fake = FakeTelegram(flood=flood, faults=faults, seed=seed)
        self.model = ScriptedModel(improvise=improvise, allow_rejections=True, keep=100)
        self._database_url = database_url
        environment = {} if database_url is None else {"HERMES_DATABASE_URL": database_url}
        self.scene = Scenario(
            self.fake, self.model, command=command, home=home, config={"auto_title": False, **(config or {})},
            environment=environment, seconds=60.0,
        )  # fmt: skip
        self.lives: list[Life] = []
        self.troubles: list[Trouble] = []
        self.said: list[Labelled] = []
        self._chats = chats
        self.people: list[FakePerson] = []
        self._counts: list[int] = [0] * chats

    def __enter__(self) -> Self:
        self.scene.__enter__()
        self.people = [self.scene.owner(f"person{number}") for number in range(self._chats)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.scene.__exit__(kind, error, trace)

    # -- people ------------------------------------------------------------------------------------------

    def say(self, number: int, kind: str) -> Labelled:
        self._counts[number] += 1
        label, person = f"#{number}-{self._counts[number]}", self.people[number]
        said = person.say(f"{kind} {label}")
        one = Labelled(label, person, said.message)
        self.said.append(one)
        return one

    def talk(self, seconds: float) -> None:
        """Somebody writes, somebody else, sometimes one twice in a row; not while the platform holds too much."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.fake.facts()["pending"] > 2 * self._chats:
                time.sleep(min(left, 0.05))
                continue
            number = self._dice.randrange(self._chats)
            for _ in range(self._dice.choice((1, 1, 1, 2))):
                self.say(number, self._dice.choice(self._kinds))
            time.sleep(min(left, self._dice.expovariate(self._pace)))

    # -- the weather -------------------------------------------------------------------------------------

    def rage(self, *, kills: int, shortest: float = 0.1, longest: float = 3.0, ready: bool = False) -> None:
        """Start a gateway, let people talk, kill it; so many times. `ready`: its time counts from its first request.

        On a machine that is too busy for a gateway to get far, one more is killed as soon as it is in the middle of a
        turn, if none was.
        """
        for _ in range(kills):
            self._live(self._dice.uniform(shortest, longest), ready=ready)
        if not any(life.turns for life in self.lives):
            self._live(SETTLE_SECONDS, ready=True, until_busy=True)

    def _live(self, seconds: float, *, ready: bool, until_busy: bool = False) -> None:
        mode = self._dice.choice(self._modes)
        self.scene.config["display"] = {"busy_input_mode": mode}
        self.scene.start(wait=ready)
        began = time.monotonic()
        if until_busy:
            while not self._running() and time.monotonic() < began + seconds:
                self.talk(0.05)
        else:
            self.talk(seconds)
        if not self.scene.running:
            raise AssertionError(f"the gateway ended by itself:\n{self.scene.log()}")
        self.scene.kill()
        self._note(time.monotonic() - began, mode)

    def trouble(self, name: str, fault: AbstractContextManager[None], *, seconds: float) -> Trouble:
        """The store is taken away for so long, and what became of it."""
        self.scene.config["display"] = {"busy_input_mode": "queue"}
        self.scene.start()
        self.talk(2.0)
        before, before_told, starts, pid = len(self.said), self._told(), self.scene.starts, self.scene.pid
        with fault:
            self._supervised(seconds / 2)
            self._supervised(SETTLE_SECONDS, until=lambda: self._told() > before_told)  # a log has some room of its own
            if self.scene.pid != pid:
                raise AssertionError(f"the gateway ended by itself:\n{self.scene.log()}")
            told = self._told() - before_told
            self.scene.kill()
            self._supervised(seconds / 2)
            taken = self._taken()
        ended = time.monotonic()
        back = self._supervised(SETTLE_SECONDS, until=lambda: self._taken() > taken)
        self.settled(SETTLE_SECONDS)
        self.troubles.append(
            Trouble(
                name, seconds, written=len(self.said) - before, told=told, starts=self.scene.starts - starts,
                back=back, settled=time.monotonic() - ended,
            )
        )  # fmt: skip
        self.scene.kill()
        return self.troubles[-1]

    def _supervised(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> float:
        """People write now and then; a gateway that ended is started again after a pause. How long it took."""
        began, again = time.monotonic(), 0.0
        while (now := time.monotonic()) < began + seconds and not until():
            if not self.scene.running:
                again = again or now + SUPERVISED_SECONDS
                if now >= again:
                    self.scene.start(wait=False)
                    again = 0.0
            if self.fake.facts()["pending"] < 4 * self._chats:
                self.say(self._dice.randrange(self._chats), self._dice.choice(self._kinds))
            time.sleep(0.2)
        return time.monotonic() - began

    def _told(self) -> int:
        """How often a chat was told that nothing can be stored."""
        return sum(CANNOT_STORE in seen.text for person in self.people for seen in person.replies())

    def _taken(self) -> int:
        """Messages that the platform was told we have."""
        return sum(one["acknowledged_at"] is not None for one in self.fake.updates())

    def _running(self) -> int:
        return self._looked(lambda db: len(db.turns.running()), 0)

    def _note(self, seconds: float, mode: str) -> None:
        inbox, outbox = self._counted()
        self.lives.append(
            Life(
                len(self.lives) + 1, seconds, mode, waiting=int(self.fake.facts()["pending"]),
                open_rows=inbox.get("queued", 0) + inbox.get("claimed", 0),
                owed=sum(outbox.get(state, 0) for state in _OWED), turns=self._running(),
            )
        )  # fmt: skip

    def settle(self, *, seconds: float = SETTLE_SECONDS) -> History:
        """Fair weather: all is brought to its end, everybody writes once more, and the gateway ends in order."""
        self.fake.faults()
        self.scene.config["display"] = {"busy_input_mode": "queue"}
        self.scene.start()
        self.settled(seconds)
        for number in range(self._chats):
            self.say(number, "plain")
        self.settled(seconds)
        self.scene.stop()
        return self.history()

    def history(self) -> History:
        """What there is to know now; a run is judged when nothing is under way."""
        left = self.scene.home / "workspace" / _LEFT_BEHIND
        effects = left.read_text(encoding="utf-8").split() if left.exists() else []
        db = self._store()
        try:
            return History.read(db, self.fake, self.said, effects=effects, refused=self.model.rejections)
        finally:
            db.close()

    def settled(self, seconds: float) -> None:
        """Wait until nothing is under way; what is late is for the checker."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.unsettled():
            time.sleep(0.2)

    def unsettled(self) -> int:
        """How much is under way: at the platform, in the inbox, in the outbox."""
        inbox, outbox = self._counted()
        open_rows = sum(inbox.get(state, 0) for state in ("queued", "claimed"))
        return int(self.fake.facts()["pending"]) + open_rows + sum(outbox.get(state, 0) for state in _OWED)

    def _counted(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many rows of each state there are, in inbox and outbox."""
        nothing: tuple[dict[str, int], dict[str, int]] = {}, {}
        return self._looked(lambda db: (db.inbox.counts(), db.outbox.counts()), nothing)

    def _looked(self, look: Callable[[SessionDB], T], nothing: T) -> T:
        """`nothing` when it was killed before it had a store."""
        if self._database_url is None and not (self.scene.home / "state.db").exists():
            return nothing
        db = self._store()
        try:
            return look(db)
        finally:
            db.close()

    def _store(self) -> SessionDB:
        return SessionDB(self._database_url or self.scene.home / "state.db")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.storm", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--chats", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--database-url", help="a PostgreSQL store instead of the home's own")
    parser.add_argument("--postgresql", action="store_true", help="on a PostgreSQL server of its own")
    parser.add_argument("--longest", type=float, default=3.0, help="seconds that a gateway lives at most")
    parser.add_argument("--no-streaming", action="store_true", help="answers are not shown while they are made")
    parser.add_argument("--home", type=Path, help="where the gateway lives, to look into afterwards")
    parser.add_argument(
        "--away-seconds", type=float, default=0.0,
        help="then the disk is full for so long, and the database away for as long (needs the right to mount)",
    )  # fmt: skip
    args = parser.parse_args()
    if args.away_seconds and (args.database_url or not may_mount()):
        parser.error(f"--away-seconds {NEEDS_MOUNT}, and a store of its own")
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a gateway went away in the middle is the point of it
    print(f"{args.kills} kills, {args.chats} chats, seed {args.seed}", flush=True)
    config = {"streaming": {"enabled": False}} if args.no_streaming else None
    with ExitStack() as stack:
        home: Path | None = args.home
        disk = stack.enter_context(SmallDisk("512m")) if args.away_seconds else None
        server = None
        if args.postgresql:
            server = TestPostgres(folder=None if disk is None else disk.folder / "server")
            stack.callback(server.close)
        elif disk is not None:
            home = disk.folder / "home"
        storm = stack.enter_context(
            Storm(
                chats=args.chats, seed=args.seed, home=home, config=config,
                database_url=args.database_url if server is None else server.fresh(),
            )
        )  # fmt: skip
        for _ in range(args.kills):
            storm.rage(kills=1, longest=args.longest)
            print(storm.lives[-1].line(), flush=True)
        if disk is not None:
            for name, fault in troubles(storm, disk, server):
                print(storm.trouble(name, fault, seconds=args.away_seconds).line(), flush=True)
        history = storm.settle()
        notifications = history.notifications(str(storm.people[0].id))
    print(history.summary())
    print("what the phone of one chat showed:", *(f"  {text[:100]!r}" for text in notifications), sep="\n")
    broken = history.violations()
    print("\n".join(broken) or "every promise was kept")
    return 1 if broken else 0


def troubles(
    storm: Storm, disk: SmallDisk, server: TestPostgres | None
) -> list[tuple[str, AbstractContextManager[None]]]:
    """The two that a store can have, for the engine at hand. The home or the server lies on that disk."""
    if server is None:
        return [("disk full", disk.full()), ("database locked", locked(storm.scene.home / "state.db"))]
    return [("disk full", disk.full(server)), ("database away", stopped(server))]


if __name__ == "__main__":
    sys.exit(main())
