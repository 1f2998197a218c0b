"""Worker: ADDRESS SESSION NAME COUNT. Appends to a conversation and now and then compresses it.

It says what it was promised, one line for each operation that returned:
    append <label> <message id> <session id>
    rotate <label> <parent> <child>
"""

from __future__ import annotations

import random
import sys

from tests.support.processes import say, wait_for_go

from hermes_state.errors import SessionEnded
from hermes_state.session_db import SessionDB

ROTATIONS = 0.015


def main(address: str, session: str, name: str, count: int) -> None:
    dice = random.Random(name)
    db = SessionDB(address)
    said: list[str] = []
    say("ready")
    wait_for_go()
    for number in range(count):
        label = f"{name}-{number}"
        rotate = dice.random() < ROTATIONS
        while True:
            try:
                if rotate:
                    summary = {"role": "user", "content": f"summary {label}"}
                    child = db.ledger.rotate(session, [summary]).session_id
                    said.append(f"rotate {label} {session} {child}")
                    session = child
                else:
                    row = db.append_message(session, "user", f"said {label}")
                    said.append(f"append {label} {row} {session}")
                break
            except SessionEnded as moved:
                session = moved.tip
    db.close()
    say("\n".join(said))  # at the end: a full pipe would make the processes wait for their reader


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
