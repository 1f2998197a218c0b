"""`hermes pairing`: list who asks to be let in, approve them by their code, and shut people out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.parser import Parser, Verbs
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.pairings import Standing
    from hermes_state.people.people import Role

_WAITING = output.columns("Platform", "Name…", "ID", ">Asked", ">Code ends")
_PAIRED = output.columns("Platform", "Name…", "ID", "Role", "State", "Person")
_ROLES = {
    "owner": "it is you, the person at this machine",
    "admin": "may use every tool, the terminal too",
    "member": "may talk, without terminal and files (the default)",
    "guest": "may talk, and Hermes remembers nothing of them",
}


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    verbs.add(
        "list", _list, "list who waits for approval, who was approved and who was revoked", "", "--json", json=True
    )
    approve = verbs.add(
        "approve", _approve, "let in the person who was given a code, as a member unless an option says otherwise",
        "telegram K7QM2XPA", "telegram K7QM2XPA --owner   # that is me", json=True,
    )  # fmt: skip
    approve.add_argument("platform", metavar="PLATFORM", help="where they write from, such as telegram")
    approve.add_argument("code", metavar="CODE", help="what they were told")
    roles = approve.add_mutually_exclusive_group()
    for role, meaning in _ROLES.items():
        roles.add_argument(f"--{role}", dest="role", action="store_const", const=role, help=meaning)
    revoke = verbs.add(
        "revoke", _revoke, "shut somebody out from their next message on, whatever an allow list says",
        "telegram 42", "slack U123 --account T777",
        "api_server 5d4c0b…   # a key of the API; hermes people list shows its id", json=True,
    )  # fmt: skip
    revoke.add_argument("platform", metavar="PLATFORM")
    revoke.add_argument("user", metavar="ID", help="their id on the platform; hermes pairing list shows it")
    revoke.add_argument("--account", metavar="NAME", help="only under this account of ours")
    clear = verbs.add(
        "clear-pending", _clear, "invalidate all codes that were given out", "", "telegram --yes", json=True, yes=True
    )
    clear.add_argument("platform", nargs="?", metavar="PLATFORM", help="of one platform only")


def _list(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        waiting = db.pairings.pending()
        known = [row for row in _standings(db) if row.state != "seen"]
        platforms = sorted({row.platform for row in waiting} | {row.platform for row in known})
        locked = {platform: db.pairings.locked_until(platform) for platform in platforms}
    if args.json:
        output.print_json({
            "pending": [row._asdict() for row in waiting],
            "known": [row._asdict() for row in known],
            "locked": {platform: until for platform, until in locked.items() if until},
        })  # fmt: skip
        return
    parts = []
    if waiting:
        cells = [
            (row.platform, row.display_name or "—", row.native_id, text.ago(row.requested_at), text.ago(row.expires_at))
            for row in waiting
        ]
        parts += [output.style("Waiting", "bold"), output.table(_WAITING, cells), ""]
    if known:
        rows = [
            (row.platform, row.display_name or "—", row.native_id, row.role, row.state, row.person_id or "—")
            for row in known
        ]
        parts += [output.style("Known", "bold"), output.table(_PAIRED, rows)]
    for platform, until in locked.items():
        if until:
            parts.append(f"{platform} takes no codes after too many wrong ones; again {text.ago(until)}.")
    output.page("\n".join(parts).strip() or "Nobody waits, and nobody was paired yet.")


def _standings(db: SessionDB) -> list[Standing]:
    return sorted(db.pairings.standings()[1], key=lambda row: (row.platform, row.native_id, row.account))


def _approve(args: argparse.Namespace) -> None:
    from gateway.access.pairing import Pairing

    role: Role | None = args.role
    with store.open_store() as db:
        done = Pairing(db).approve(_platform(args.platform), args.code, role=role)
    request, person = done.request, done.person
    if args.json:
        output.print_json(
            {"platform": request.platform, "id": request.native_id, "person": person.id, "role": person.role}
        )
        return
    account = f"{request.platform} {request.native_id}"
    name = f"{request.display_name} ({account})" if request.display_name else account
    who = "you" if person.id == "owner" else f"person {person.id}"
    print(f"{text.harmless(name)} may talk to Hermes as {person.role}: {who}.")


def _revoke(args: argparse.Namespace) -> None:
    from gateway.access.pairing import Pairing

    platform = _platform(args.platform, keys=True)
    with store.open_store() as db:
        _somebody(db, platform, args.user)
        accounts = Pairing(db).revoke(platform, args.user, account=args.account)
    if args.json:
        output.print_json({"platform": platform, "id": args.user, "accounts": list(accounts)})
        return
    who = text.harmless(f"{platform} {args.user}")
    print(f"{who} is shut out from the next message on. hermes people link lets them in again.")


def _somebody(db: SessionDB, platform: str, user: str) -> None:
    """Refuse an id that nobody has and no rule lets in: most likely a typing error."""
    from gateway.access.authorisation import Principal, Surface, decide
    from gateway.access.policy import PolicyKeeper

    if any((row.platform, row.native_id) == (platform, user) for row in db.pairings.standings([user])[1]):
        return
    who, policy = Principal("user", platform, user), PolicyKeeper(db).current()
    if not decide(who, Surface("dm", platform, user), "speak", None, policy).allowed:
        raise UsageError(f"nobody on {platform} is let in as {user!r:.60}", hint="hermes pairing list shows the ids.")


def _clear(args: argparse.Namespace) -> None:
    platform = None if args.platform is None else _platform(args.platform)
    with store.open_store() as db:
        count = sum(1 for row in db.pairings.pending() if platform in (None, row.platform))
        if count:
            prompts.confirm(f"Invalidate {text.counted(count, 'code')}?", yes=args.yes)
        cleared = db.pairings.clear(platform) if count else 0
    if args.json:
        output.print_json({"cleared": cleared})
        return
    print(f"{text.counted(cleared, 'code')} invalidated.")


def _platform(name: str, *, keys: bool = False) -> str:
    """The name as stored, in lower case; a plug-in may have added the platform. `keys`: the API counts as one."""
    found = name.strip().lower()
    if not found or found == "local" or (found == "api_server" and not keys):
        raise UsageError(f"nobody is paired on {name!r:.40}", hint="Name a chat platform, such as telegram.")
    return found
