"""Worker: HOME. Holds the home's store open and does what it is told, one line at a time.

append N     N messages; says their ids, each only after its append returned, or the error's name
run A B C    the command `hermes A B C`, inside this very process
touch        what no part of Hermes may do: open() and close() of the database file
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.processes import say

from hermes_cli.main import main as hermes
from hermes_state.errors import StateError
from hermes_state.session_db import SessionDB

SESSION = "probed"


def main(home: str) -> None:
    os.environ["HERMES_HOME"] = home
    db = SessionDB()
    for session in (SESSION, "other"):
        db.create_session(session, "cli")
        db.append_message(session, "user", "the first")
    say("ready")
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "append":
            say(" ".join(append(db) for _ in range(int(words[0]))))
        elif verb == "run":
            say(f"exit {run(words)}")
        elif verb == "touch":
            Path(home, "state.db").open("rb").close()
            say("touched")


def run(words: list[str]) -> int:
    """The command's exit code. What it prints goes nowhere, and it reads nothing: our own words are on both ends."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    orders = sys.stdin
    os.dup2(nowhere, 1)
    try:
        with Path(os.devnull).open() as sys.stdin:
            return hermes(words)
    finally:
        sys.stdin = orders
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def append(db: SessionDB) -> str:
    try:
        return str(db.append_message(SESSION, "user", "must not be lost"))
    except StateError as error:
        return type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1])
