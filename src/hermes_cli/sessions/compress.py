"""`hermes sessions compress` and `uncompress`: make a conversation shorter for the model, and undo that."""

from __future__ import annotations

import argparse
import asyncio

from hermes_agent import AIAgent
from hermes_cli.framework import text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Verbs
from hermes_cli.sessions import lookup
from hermes_config.errors import HermesError
from hermes_state import SessionDB
from tui_gateway.session import attach


class NotCompressed(HermesError):
    """The conversation was not compressed; nothing was changed."""


def add(verbs: Verbs) -> None:
    compress = verbs.add(
        "compress", _compress, "give the model a summary of the older part of a conversation; nothing is deleted",
        '"Trip to Kyoto"', '20261109 --focus "the bookings"', db=True,
    )  # fmt: skip
    compress.add_argument("--focus", metavar="TEXT", help="the subject that the summary must keep")
    uncompress = verbs.add(
        "uncompress", _uncompress, "undo the last compression of a conversation; later messages are kept",
        '"Trip to Kyoto"', db=True,
    )  # fmt: skip
    for verb in (compress, uncompress):
        lookup.add_id(verb)


def _compress(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    tip = db.get_compression_tip(lookup.find(db, args.id, guess=True)["id"])
    told: list[str] = []
    agent = AIAgent(session_db=db, session_id=tip)
    agent.status_callback = lambda kind, said: told.append(said)
    if not asyncio.run(agent.compress(args.focus, request=attach.turn_request(db, tip))):
        raise NotCompressed(f'"{_name(db, tip)}" was not compressed: {told[-1] if told else "nothing was changed"}')
    new = str(agent.session_id)
    said = [f'"{_name(db, new)}": {told[-1]}.']
    if db.get_compression_fallback_streak(new):
        said.append("The model gave no usable summary; Hermes made one without it.")
    return CommandAnswer(None, *said, f"It continues as {new}. Undo: hermes sessions uncompress {new}")


def _uncompress(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    undone = db.ledger.uncompress(db.get_compression_tip(lookup.find(db, args.id, guess=True)["id"]))
    here = undone.handle.session_id
    since = f", with {text.counted(undone.brought, 'message')} since then" if undone.brought else ""
    return CommandAnswer(None, f'"{_name(db, here)}" continues as {here}, as it was before the compression{since}.')


def _name(db: SessionDB, session_id: str) -> str:
    row = db.get_session(session_id)
    return session_id if row is None else lookup.title_of(row)
