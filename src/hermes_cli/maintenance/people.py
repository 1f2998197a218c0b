"""`hermes people` (known people with their accounts, roles and time zones) and `hermes pairing` (letting people in)."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.parser import Parser, Verbs, add_offset
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.people import Person, Role


_ROLES = ("owner", "admin", "member", "guest")
_COLUMNS = output.columns("Name…", "Role", "Accounts…20", "Zone", "Person")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list, "list known people, in the order in which they first wrote",
        "", "--limit 100 --offset 100 --json", json=True, limit=50,
    )  # fmt: skip
    add_offset(listing)
    show = verbs.add("show", _show, "show one person", "telegram:42", json=True)
    role = verbs.add(
        "role", _role, "give a role: owner and admin may use every tool, member and guest neither terminal nor files",
        "telegram:42 admin",
    )  # fmt: skip
    link = verbs.add(
        "link", _link, "link an account to a person, and let it in",
        "owner telegram 42    # my own account", "telegram:42 slack U123 --account T777",
    )  # fmt: skip
    unlink = verbs.add("unlink", _unlink, "unlink an account; it stays out", "telegram 42")
    zone = verbs.add(
        "zone", _zone, "set the time zone of a person; without one, back to the machine's",
        "owner Europe/Lisbon", "telegram:42",
    )  # fmt: skip
    for verb in (show, role, link, zone):
        verb.add_argument("person", metavar="PERSON", help="owner, a person's id, or an account such as telegram:42")
    role.add_argument("role", choices=_ROLES, metavar="ROLE", help=", ".join(_ROLES))
    for verb in (link, unlink):
        verb.add_argument("platform", metavar="PLATFORM")
        verb.add_argument("user", metavar="ID", help="the id on the platform, not a name")
        verb.add_argument("--account", default="", metavar="NAME", help="only for this account of ours (default: all)")
    zone.add_argument("zone", nargs="?", metavar="ZONE", help="an IANA name")


def _find(db: SessionDB, name: str) -> Person:
    """A person by id or by account; never by name, since several people may have one name."""
    from hermes_state.ids import LOCAL_OWNER, PersonId

    if name == LOCAL_OWNER:
        return db.people.owner()
    if (known := db.people.get(PersonId(name))) is not None:
        return known
    platform, _, native_id = name.partition(":")
    found = db.people.known_as(platform=platform.lower(), native_id=native_id) if native_id else ()
    if len(found) > 1:
        ids = ", ".join(person.id for person in found)
        raise UsageError(f"{name!r:.60} means several people, under different accounts of ours", hint=f"One of {ids}.")
    if not found:
        raise UsageError(f"there is no person {name!r:.60}", hint="hermes people list shows them.")
    return found[0]


def _list(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        total = db.people.count()
        rows = [_facts(db, person) for person in db.people.list(limit=args.limit, offset=args.offset)]
    if args.json:
        output.print_json(rows)
        return
    if not rows:
        print("Nobody is known yet." if not total else f"There are {total:,} people.")
        return
    cells = []
    for row in rows:
        accounts = ", ".join(f"{one['platform']}:{one['native_id']}" for one in row["accounts"])
        cells.append((row["display_name"] or "—", row["role"], accounts or "—", row["zone"] or "—", row["id"]))
    output.page(output.table(_COLUMNS, cells))
    if total > args.offset + len(rows):
        print(f"{len(rows)} of {total:,} shown; --limit and --offset show others.", file=sys.stderr)


def _facts(db: SessionDB, person: Person) -> dict[str, Any]:
    return {**asdict(person), "accounts": [asdict(identity) for identity in db.people.identities(person.id)]}


def _show(args: argparse.Namespace) -> None:
    from gateway.access.authorisation import API, Principal, Surface, api_client, decide
    from gateway.access.policy import PolicyKeeper

    with store.open_store() as db:
        row = _facts(db, _find(db, args.person))
        policy = PolicyKeeper(db).current()
    for one in row["accounts"]:
        platform, account = one["platform"], one["account"]
        who, where = Principal("user", platform, one["native_id"], account), Surface("dm", platform, account=account)
        if platform == API:
            who, where = api_client(one["native_id"])
        answer = decide(who, where, "speak", None, policy)
        at_home = platform == "local"
        one["allowed"], one["why"] = at_home or answer.allowed, "at this machine" if at_home else answer.reason
        one["role"] = "owner" if at_home else answer.role
    if args.json:
        output.print_json(row)
        return
    facts = [("person", row["id"]), ("name", row["display_name"] or "—"), ("role", row["role"])]
    facts += [("zone", row["zone"] or "the machine's"), ("met", text.when(row["created_at"]))]
    for one in row["accounts"]:
        state = f"gets in as {one['role']}: {one['why']}" if one["allowed"] else f"does not get in: {one['why']}"
        facts.append(("account", f"{one['platform']}:{one['native_id']} {state}"))
    output.page(output.facts(facts, wide=9))


def _role(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        person = _find(db, args.person)
        db.people.set_role(person.id, args.role)
    print(f"{_named(person)} is {args.role} from the next message on.")


def _link(args: argparse.Namespace) -> None:
    platform = _platform(args.platform)
    with store.open_store(create=args.person == "owner") as db:
        person = _find(db, args.person)
        db.pairings.link(person.id, platform=platform, native_id=_user(args.user), account=args.account)
    print(f"{text.harmless(f'{platform} {args.user}')} is {_named(person)} and gets in as {person.role}.")


def _unlink(args: argparse.Namespace) -> None:
    platform = _platform(args.platform)
    with store.open_store() as db:
        if not db.pairings.unlink(platform=platform, native_id=args.user, account=args.account):
            raise UsageError(
                f"{platform}:{args.user:.60} is not linked to anyone", hint="hermes people list shows accounts."
            )
    print(f"{text.harmless(f'{platform} {args.user}')} is not linked to anyone any more, and stays out.")


def _zone(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        person = _find(db, args.person)
        db.people.set_zone(person.id, args.zone)
    print(f"{_named(person)} has the time zone {args.zone or 'of this machine'}.")


def _named(person: Person) -> str:
    return text.harmless(f"{person.display_name} ({person.id})" if person.display_name else person.id)


def _platform(name: str) -> str:
    found = name.strip().lower()
    if not found or found == "local":
        raise UsageError(f"{name!r:.40} has no accounts", hint="Name a chat platform, such as telegram.")
    return found


def _user(name: str) -> str:
    from gateway.access.authorisation import is_stable

    if not is_stable(name):
        raise UsageError(f"{name!r:.60} is not an id", hint="Write the id as the platform has it, without spaces.")
    return name


_WAITING = output.columns("Platform", "Name…", "ID", ">Asked", ">Code ends")
_PAIRED = output.columns("Platform", "Name…", "ID", "Role", "State", "Person")
_ROLE_OPTIONS = {
    "owner": "it is you, the person at this machine",
    "admin": "may use every tool, the terminal too",
    "member": "may talk, without terminal and files (the default)",
    "guest": "may talk, and Hermes remembers nothing of them",
}


def register_pairing(parser: Parser) -> None:
    verbs = Verbs(parser)
    verbs.add(
        "list",
        _list_pairing,
        "list who waits for approval, who was approved and who was revoked",
        "",
        "--json",
        json=True,
    )
    approve = verbs.add(
        "approve", _approve, "let in the person who was given a code, as a member unless an option says otherwise",
        "telegram K7QM2XPA", "telegram K7QM2XPA --owner   # that is me", json=True,
    )  # fmt: skip
    approve.add_argument("platform", metavar="PLATFORM", help="where they write from, such as telegram")
    approve.add_argument("code", metavar="CODE", help="what they were told")
    roles = approve.add_mutually_exclusive_group()
    for role, meaning in _ROLE_OPTIONS.items():
        roles.add_argument(f"--{role}", dest="role", action="store_const", const=role, help=meaning)
    revoke = verbs.add(
        "revoke", _revoke, "shut somebody out from their next message on, whatever an allow list says",
        "telegram 42", "slack U123 --account T777",
        "api_server 5d4c0b…   # a key of the API", json=True,
    )  # fmt: skip
    revoke.add_argument("platform", metavar="PLATFORM")
    revoke.add_argument("user", metavar="ID", help="their id on the platform; hermes pairing list shows it")
    revoke.add_argument("--account", metavar="NAME", help="only under this account of ours")
    clear = verbs.add(
        "clear-pending", _clear, "invalidate all codes that were given out", "", "telegram --yes", json=True, yes=True
    )
    clear.add_argument("platform", nargs="?", metavar="PLATFORM", help="of one platform only")


def _list_pairing(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        waiting = db.pairings.pending()
        standings = sorted(db.pairings.standings()[1], key=lambda row: (row.platform, row.native_id, row.account))
        known = [row for row in standings if row.state != "seen"]
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


def _approve(args: argparse.Namespace) -> None:
    from gateway.access.pairing import Pairing

    role: Role | None = args.role
    with store.open_store() as db:
        done = Pairing(db).approve(_pairing_platform(args.platform), args.code, role=role)
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

    platform = _pairing_platform(args.platform, keys=True)
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
    platform = None if args.platform is None else _pairing_platform(args.platform)
    with store.open_store() as db:
        count = sum(1 for row in db.pairings.pending() if platform in (None, row.platform))
        if count:
            prompts.confirm(f"Invalidate {text.counted(count, 'code')}?", yes=args.yes)
        cleared = db.pairings.clear(platform) if count else 0
    if args.json:
        output.print_json({"cleared": cleared})
        return
    print(f"{text.counted(cleared, 'code')} invalidated.")


def _pairing_platform(name: str, *, keys: bool = False) -> str:
    """The name as stored, in lower case; a plug-in may have added the platform. `keys`: the API counts as one."""
    found = name.strip().lower()
    if not found or found == "local" or (found == "api_server" and not keys):
        raise UsageError(f"nobody is paired on {name!r:.40}", hint="Name a chat platform, such as telegram.")
    return found
