"""`hermes approvals`: the calls that run without a question because a person once said so, and taking that back.

A standing approval is for exactly one call of one person, in one conversation ("session") or everywhere ("always").
What is allowed by rule stands in config.yaml and is not listed here.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hermes_cli import finding, output, store, text
from hermes_cli.parser import Parser, Verbs, add_json
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.approvals import Approval

_COLUMNS = (
    output.Column("ID"),
    output.Column("Call", shrinks=True),
    output.Column("Where", shrinks=True),
    output.Column("Since", right=True),
)


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add("list", _list, help="list standing approvals", example="hermes approvals list")
    revoke = verbs.add(
        "revoke",
        _revoke,
        help="take a standing approval back: the call is asked about again",
        example="hermes approvals revoke ask_0f3a9c21b7de",
    )
    revoke.add_argument("id", metavar="ID", help="as `hermes approvals list` shows it, or its beginning")
    for verb in (listing, revoke):
        verb.add_argument("--person", metavar="ID", help="whose (default: the owner's, who sits at this terminal)")
    add_json(listing)


def _list(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        rules = _rules(db, args.person)
        if args.json:
            output.print_json([_facts(rule) for rule in rules])
        elif rules:
            cells = [(rule.id, _call(rule), _where(db, rule), text.ago(rule.decided_at)) for rule in rules]
            print(output.table(_COLUMNS, cells))
        else:
            print("Nothing is approved for good: every call that needs leave is asked about.")


def _revoke(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        found = [rule for rule in _rules(db, args.person) if rule.id.startswith(args.id)] if args.id else []
        if len(found) != 1 or not db.approvals.revoke(found[0].id):
            problem = "fits several standing approvals" if len(found) > 1 else "is no standing approval"
            named = text.shorten(text.harmless(args.id), 60)
            raise UsageError(f'"{named}" {problem}', hint="hermes approvals list shows them.")
        print(f"Taken back: {_call(found[0])}")


def _rules(db: SessionDB, person: str | None) -> tuple[Approval, ...]:
    from hermes_state.ids import LOCAL_OWNER, PersonId

    return db.approvals.rules(PersonId(person) if person else LOCAL_OWNER)


def _call(rule: Approval) -> str:
    return text.harmless(str(rule.call.get("text") or rule.call.get("kind") or rule.call_hash))


def _where(db: SessionDB, rule: Approval) -> str:
    if rule.scope == "always":
        return "everywhere"
    row = db.get_session(db.get_compression_tip(rule.conversation_id))
    return rule.conversation_id if row is None else text.harmless(finding.title_of(row))


def _facts(rule: Approval) -> dict[str, Any]:
    return {
        "id": rule.id, "scope": rule.scope, "conversation_id": rule.conversation_id, "kind": rule.call.get("kind"),
        "text": rule.call.get("text"), "workdir": rule.call.get("workdir"), "decided_at": rule.decided_at,
        "expires_at": rule.rule_expires_at,
    }  # fmt: skip
