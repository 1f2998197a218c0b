"""`hermes replay`: ask another model the same turn, with the recorded results of its tools, and compare."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict

from hermes_agent.receipts import receipt
from hermes_cli.framework import output, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, add_json, with_store
from hermes_config import config as configuration
from hermes_config import redaction
from hermes_state import SessionDB

_COLUMNS = output.columns("", "Model…", ">In", ">Out", ">Cost", ">Requests", "Tools…")


def register(parser: Parser) -> None:
    parser.add_examples("turn_3f9a2c41d0b7e856 --model gpt-5-mini", "1207 --model llama3 --provider ollama --json")
    parser.add_argument(
        "turn", metavar="TURN", help="a turn or its beginning, a trace, the number of a delivery, or last"
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="the model to ask; it may be the same one")
    parser.add_argument("--provider", metavar="NAME", help="its provider, if the name of the model does not tell")
    add_json(parser)
    parser.set_defaults(run=with_store(_replay))


def _replay(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from hermes_agent.models import http, providers
    from hermes_agent.receipts import replay

    turn = receipt.find(db, args.turn)
    config = configuration.load()
    endpoint = providers.primary(config, model=args.model, provider=args.provider)

    async def run() -> replay.Replay:
        try:
            return await replay.replay(db, config, turn, endpoint)
        finally:
            await http.close_clients()

    done = asyncio.run(run())
    sides = (("recorded", done.recorded), ("replayed", done.replayed))
    cells = [
        (
            name, side.model, f"{side.input_tokens:,}", f"{side.output_tokens:,}",
            "not known" if side.cost_usd is None else f"${side.cost_usd:.4f}", str(side.model_calls),
            ", ".join(side.calls) or "none",
        )
        for name, side in sides
    ]  # fmt: skip
    redact = redaction.redactor()
    drawn = [output.table(_COLUMNS, cells)]
    for name, side in sides:
        side.text = redact(side.text)
        drawn += ["", output.style(f"{name}:", "dim"), text.harmless_block(side.text or f"({side.ended})")]
    drawn += ["", _sentence(done.from_journal, done.not_executed, done.left_out)]
    return CommandAnswer({"turn_id": turn.id, **asdict(done)}, drawn="\n".join(drawn))


def _sentence(from_journal: int, not_executed: int, left_out: int) -> str:
    said = f"Nothing was executed: {text.counted(from_journal, 'call')} answered from the record"
    said += f", {not_executed} not in it and left unanswered." if not_executed else "."
    if left_out:
        said += f" {text.counted(left_out, 'message')} that joined the recorded turn later was left out."
    return said
