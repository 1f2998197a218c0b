"""`hermes approvals`: list, give and revoke permissions, and show the log of commands that left the sandbox."""

from __future__ import annotations

import argparse
import os.path
from pathlib import Path
from typing import Any

from hermes_agent.execution.view import too_wide
from hermes_cli.framework import output, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, positive
from hermes_cli.sessions import lookup
from hermes_config import config, secret_files
from hermes_config.errors import UsageError
from hermes_config.home import hermes_home
from hermes_config.redaction import redacted
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, PersonId
from hermes_state.turns.approvals import Grant, GrantKind, LoggedExit

_GRANTS = output.columns("ID", "What…", "For", "Ends…", ">Given")
_EXITS = output.columns(">When", "For", "What…", "Opened…", "Allowed by…")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add("list", _list, "list the valid permissions and how long each lasts", db=True, json=True)
    listing.add_argument("--person", metavar="ID", help="only this person's (default: everybody's)")
    about = "revoke a permission, so that Hermes asks again"
    revoke = verbs.add("revoke", _revoke, about, "grant_0f3a9c21b7de", db=True)
    revoke.add_argument("id", metavar="ID", help="as hermes approvals list shows it, or its beginning")
    add = verbs.add("add", _add, "give a permission in advance", '--tool deploy --where "to=test-*" --times 5')
    what = add.add_mutually_exclusive_group(required=True)
    what.add_argument("--network", action="store_true", help="commands may use the network")
    what.add_argument("--folder", metavar="PATH", help="commands and file tools may write to this folder")
    what.add_argument("--tool", metavar="NAME", help="this tool of a plug-in may be used")
    where = "with --tool: what an argument must match"
    add.add_argument("--where", metavar="ARGUMENT=PATTERN", action="append", default=[], help=where)
    add.add_argument("--times", metavar="N", type=positive, help="valid for N uses (default: no limit)")
    add.add_argument("--hours", metavar="N", type=float, help="valid for N hours (default: until you revoke it)")
    add.add_argument("--person", metavar="ID", help="the person who gets it (default: the owner)")
    verbs.add(
        "log", _log, "list commands that left the sandbox, newest first, and who allowed it",
        "-n 20", "--json", db=True, json=True, limit=50,
    )  # fmt: skip


def _list(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    grants = db.approvals.grants(person_id=args.person or None)
    cells = [
        (grant.id, _what(grant), _name(db, grant.person_id), _end(db, grant), text.ago(grant.created_at))
        for grant in grants
    ]
    nothing = "There are no permissions: Hermes asks about every call that needs one."
    if config.load().approvals.mode == "off":
        nothing = "There are no permissions, and approvals.mode is off: Hermes asks nothing."
    return output.list_answer([_facts(db, grant) for grant in grants], _GRANTS, cells, nothing=nothing)


def _revoke(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    found = [grant for grant in db.approvals.grants() if grant.id.startswith(args.id)] if args.id else []
    if len(found) != 1 or not db.approvals.revoke(found[0].id):
        problem = "matches several permissions" if len(found) > 1 else "is not a valid permission"
        named = text.shorten(text.harmless(args.id), 60)
        raise UsageError(f'"{named}" {problem}', hint="hermes approvals list shows them.")
    return CommandAnswer(None, f"Revoked: {_what(found[0])}")


def _add(args: argparse.Namespace) -> None:
    kind: GrantKind = "network" if args.network else "folder" if args.folder else "tool"
    value = "" if args.network else os.path.realpath(args.folder) if args.folder else args.tool
    if kind == "folder":
        _check_folder(value)
    patterns = dict(_pattern(one) for one in args.where)
    if patterns and kind != "tool":
        raise UsageError("--where needs --tool")
    if args.hours is not None and not args.hours > 0:
        raise UsageError("--hours must be a number above 0")
    with store.open_store(create=not args.person) as db:
        person = PersonId(args.person) if args.person else LOCAL_OWNER
        if args.person and db.people.get(person) is None:
            raise UsageError(f"nobody has the id {text.harmless(person)}", hint="hermes people list shows them.")
        until = None if args.hours is None else db.clock() + args.hours * 3_600
        grant = db.approvals.add(
            person_id=person, kind=kind, value=value, patterns=patterns or None, shown="hermes approvals add",
            granted_by=LOCAL_OWNER, uses=args.times, until=until,
        )  # fmt: skip
        end = "until revoked" if args.hours is None and args.times is None else _end(db, grant)
        print(f"Allowed: {_what(grant)}, {end}. hermes approvals revoke {grant.id} revokes it.")


def _check_folder(path: str) -> None:
    """Refuse a folder that is missing, too wide or secret."""
    folder, user_home = Path(path), Path.home().resolve()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {text.harmless(path)}", hint="Make it first, or check the name.")
    ours = hermes_home().resolve()
    if too_wide(folder, user_home) or folder == user_home or ours.is_relative_to(folder) or folder.is_relative_to(ours):
        raise UsageError(f"{text.harmless(path)} is too wide for a permission", hint="Name a folder inside it.")
    if secret_files.is_secret(folder, user_home=user_home, folder=True):
        raise UsageError(f"{text.harmless(path)} holds secrets, so commands get no access to it")


def _pattern(typed: str) -> tuple[str, str]:
    name, equals, pattern = typed.partition("=")
    if not (name and equals):
        raise UsageError(f'"{text.harmless(typed)}" is not ARGUMENT=PATTERN', hint='For example --where "to=test-*".')
    return name, pattern


def _log(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    exits = db.approvals.exits(limit=args.limit)
    used = db.approvals.named(number for left in exits for number in left.grants)
    cells = [
        (text.ago(left.at), _name(db, left.person_id), _shown(left.text), left.opening, _allowed_by(db, left, used))
        for left in exits
    ]
    document = [_exit_facts(db, left, used) for left in exits]
    return output.list_answer(document, _EXITS, cells, nothing="No command has left the sandbox.")


def _what(grant: Grant) -> str:
    if grant.kind == "network":
        return "network"
    if grant.kind == "folder":
        return f"writes to {text.harmless(grant.value)}"
    if grant.kind == "tool":
        where = ", ".join(f"{name}={glob}" for name, glob in (grant.patterns or {}).items())
        return text.harmless(f"tool {grant.value}" + (f" where {where}" if where else ""))
    if grant.kind == "target":
        return text.harmless(f"target {grant.value}")
    return f"exactly: {_shown(grant.shown)}"


def _shown(call: str) -> str:
    """A command or path on one line, with its secrets covered."""
    return text.harmless(redacted(call))


def _end(db: SessionDB, grant: Grant) -> str:
    if grant.span == "task":
        where = "with its task"
    elif grant.span == "always":
        where = "" if grant.uses_left or grant.expires_at else "when revoked"
    else:
        row = db.get_session(db.get_compression_tip(grant.conversation_id))
        title = grant.conversation_id if row is None else text.harmless(lookup.title_of(row))
        where = f"with the conversation {title}"
    left = "" if grant.uses_left is None else f"after {text.counted(grant.uses_left, 'use')} more"
    until = "" if grant.expires_at is None else text.when(grant.expires_at)
    return ", ".join(filter(None, (left, until, where)))


def _name(db: SessionDB, person_id: PersonId | None) -> str:
    person = None if person_id is None else db.people.get(person_id)
    if person is None:
        return person_id or "somebody unknown"
    return text.harmless(person.display_name or person.id)


def _allowed_by(db: SessionDB, left: LoggedExit, used: dict[str, Grant]) -> str:
    if left.allowed_by == "config":
        return f"config.yaml ({left.rule})"
    people = dict.fromkeys(_name(db, used[one].granted_by) for one in left.grants if one in used)
    return f"{' and '.join(people) or 'a person'} ({', '.join(left.grants)})"


def _facts(db: SessionDB, grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id, "kind": grant.kind, "value": grant.value, "patterns": grant.patterns,
        "text": _shown(grant.shown),
        "person_id": grant.person_id, "person": _name(db, grant.person_id), "span": grant.span,
        "conversation_id": grant.conversation_id or None, "turn_id": grant.turn_id or None,
        "uses_left": grant.uses_left, "expires_at": grant.expires_at, "approval_id": grant.approval_id,
        "granted_by": grant.granted_by, "created_at": grant.created_at,
    }  # fmt: skip


def _exit_facts(db: SessionDB, left: LoggedExit, used: dict[str, Grant]) -> dict[str, Any]:
    grants = [used[one] for one in left.grants if one in used]
    return {
        "at": left.at, "person_id": left.person_id, "person": _name(db, left.person_id),
        "conversation_id": left.conversation_id, "turn_id": left.turn_id, "kind": left.kind, "text": _shown(left.text),
        "workdir": left.workdir, "opening": left.opening, "digest": left.digest, "allowed_by": left.allowed_by,
        "grants": list(left.grants), "approvals": [one.approval_id for one in grants if one.approval_id],
        "granted_by": sorted({str(one.granted_by) for one in grants if one.granted_by}), "rule": left.rule,
    }  # fmt: skip
