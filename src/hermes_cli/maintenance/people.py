"""`hermes people`: known people with their accounts, roles and time zones."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, Verbs, add_offset
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.people import Person

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
    cells = [(row["display_name"] or "—", row["role"], _accounts(row), row["zone"] or "—", row["id"]) for row in rows]
    output.page(output.table(_COLUMNS, cells))
    if total > args.offset + len(rows):
        print(f"{len(rows)} of {total:,} shown; --limit and --offset show others.", file=sys.stderr)


def _facts(db: SessionDB, person: Person) -> dict[str, Any]:
    return {**asdict(person), "accounts": [asdict(identity) for identity in db.people.identities(person.id)]}


def _accounts(row: dict[str, Any]) -> str:
    return ", ".join(f"{one['platform']}:{one['native_id']}" for one in row["accounts"]) or "—"


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
