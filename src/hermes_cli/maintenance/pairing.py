"""`hermes pairing`: who waits to be let in, letting them in with their code, and shutting somebody out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_yes
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.pairings import Standing
    from hermes_state.people.people import Role

_WAITING = (
    output.Column("Platform"),
    output.Column("Name", shrinks=True),
    output.Column("ID"),
    output.Column("Asked", right=True),
    output.Column("Code ends", right=True),
)
_PAIRED = (
    output.Column("Platform"),
    output.Column("Name", shrinks=True),
    output.Column("ID"),
    output.Column("Role"),
    output.Column("State"),
    output.Column("Person"),
)


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list",
        _list,
        help="list who waits for approval, who was approved and who was revoked",
        example="""hermes pairing list
                   hermes pairing list --json""",
    )
    add_json(listing)
    approve = verbs.add(
        "approve",
        _approve,
        help="let in whoever was given a code, as a member unless you say otherwise",
        example="""hermes pairing approve telegram K7QM2XPA
                   hermes pairing approve telegram K7QM2XPA --owner   # that is me""",
    )
    approve.add_argument("platform", metavar="PLATFORM", help="where they write from, such as telegram")
    approve.add_argument("code", metavar="CODE", help="what they were told")
    roles = approve.add_mutually_exclusive_group()
    for role, meaning in (
        ("owner", "it is you, the person at this machine"),
        ("admin", "may use every tool, the terminal too"),
        ("member", "may talk, without terminal and files (the default)"),
        ("guest", "may talk, and Hermes remembers nothing of them"),
    ):
        roles.add_argument(f"--{role}", dest="role", action="store_const", const=role, help=meaning)
    add_json(approve)
    revoke = verbs.add(
        "revoke",
        _revoke,
        help="shut somebody out from their next message on, whatever a list says",
        example="""hermes pairing revoke telegram 42
                   hermes pairing revoke slack U123 --account T777
                   hermes pairing revoke api_server 5d4c0b…   # a key of the API; hermes people list shows its id""",
    )
    revoke.add_argument("platform", metavar="PLATFORM")
    revoke.add_argument("user", metavar="ID", help="their id on the platform; hermes pairing list shows it")
    revoke.add_argument("--account", metavar="NAME", help="only under this one of our accounts")
    add_json(revoke)
    for name in ("clear", "clear-pending"):
        clear = verbs.add(
            name,
            _clear,
            help="make all codes that were given out worthless",
            example=f"""hermes pairing {name}
                        hermes pairing {name} telegram --yes""",
        )
        clear.add_argument("platform", nargs="?", metavar="PLATFORM", help="of one platform only")
        add_yes(clear)
        add_json(clear)


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
    """Refuse what is most likely a slip: an id that nobody has and no rule lets in."""
    from gateway.access.authorisation import Principal, Surface, decide
    from gateway.access.policy import PolicyKeeper

    if any((row.platform, row.native_id) == (platform, user) for row in db.pairings.standings([user])[1]):
        return
    who, policy = Principal("user", platform, user), PolicyKeeper(db).current()
    if not decide(who, Surface("dm", platform, user), "speak", None, policy).allowed:
        raise UsageError(f"nobody on {platform} is let in as {user!r:.60}", hint="`hermes pairing list` shows the ids.")


def _clear(args: argparse.Namespace) -> None:
    platform = None if args.platform is None else _platform(args.platform)
    with store.open_store() as db:
        count = sum(1 for row in db.pairings.pending() if platform in (None, row.platform))
        question = f"Make {text.counted(count, 'code')} worthless?"
        cleared = db.pairings.clear(platform) if count and output.confirm(question, yes=args.yes) else 0
    if args.json:
        output.print_json({"cleared": cleared})
        return
    print(f"{text.counted(cleared, 'code')} made worthless." if cleared or not count else "Nothing was changed.")


def _platform(name: str, *, keys: bool = False) -> str:
    """As stored: lower case. Any name will do, a plug-in may have brought the platform. `keys`: the API's, too."""
    found = name.strip().lower()
    if not found or found == "local" or (found == "api_server" and not keys):
        raise UsageError(f"nobody is paired on {name!r:.40}", hint="Name a chat platform, such as telegram.")
    return found
