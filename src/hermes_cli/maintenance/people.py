"""`hermes people`: whom Hermes knows, by which accounts, with which role and in which time zone."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_cli.framework import output, store, text
from hermes_cli.framework.parser import Parser, Verbs, add_json, add_limit, natural
from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.people.people import Person

_ROLES = ("owner", "admin", "member", "guest")
_COLUMNS = (
    output.Column("Name", shrinks=True),
    output.Column("Role"),
    output.Column("Accounts", shrinks=True, keeps=20),
    output.Column("Zone"),
    output.Column("Person"),
)


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list",
        _list,
        help="list the people Hermes knows, in the order in which it met them",
        example="""hermes people list
                   hermes people list --limit 100 --offset 100 --json""",
    )
    add_limit(listing, 50)
    listing.add_argument("--offset", type=natural, default=0, metavar="N", help="leave out the first N")
    add_json(listing)
    show = verbs.add("show", _show, help="show one person", example="hermes people show telegram:42")
    _add_person(show)
    add_json(show)
    role = verbs.add(
        "role",
        _role,
        help="give a role: owner and admin may use every tool, member and guest neither terminal nor files",
        example="hermes people role telegram:42 admin",
    )
    _add_person(role)
    role.add_argument("role", choices=_ROLES, metavar="ROLE", help=", ".join(_ROLES))
    link = verbs.add(
        "link",
        _link,
        help="say that an account is this person's, and let it in",
        example="""hermes people link owner telegram 42    # my own account
                   hermes people link telegram:42 slack U123 --account T777""",
    )
    unlink = verbs.add(
        "unlink",
        _unlink,
        help="say that an account is nobody's any more; it stays out",
        example="hermes people unlink telegram 42",
    )
    _add_person(link)
    for verb in (link, unlink):
        verb.add_argument("platform", metavar="PLATFORM")
        verb.add_argument("user", metavar="ID", help="the id on the platform, not a name")
        verb.add_argument("--account", default="", metavar="NAME", help="under this one of our accounts (default: all)")
    zone = verbs.add(
        "zone",
        _zone,
        help="set the time zone of a person; without one, back to the machine's",
        example="""hermes people zone owner Europe/Lisbon
                   hermes people zone telegram:42""",
    )
    _add_person(zone)
    zone.add_argument("zone", nargs="?", metavar="ZONE", help="an IANA name")


def _add_person(parser: Parser) -> None:
    parser.add_argument("person", metavar="PERSON", help="owner, a person's id, or an account such as telegram:42")


def _find(db: SessionDB, name: str) -> Person:
    """Somebody by id or by account; never by name, as names are anybody's."""
    from hermes_state.ids import LOCAL_OWNER, PersonId

    if name == LOCAL_OWNER:
        return db.people.owner()
    if (known := db.people.get(PersonId(name))) is not None:
        return known
    platform, _, native_id = name.partition(":")
    found = db.people.known_as(platform=platform.lower(), native_id=native_id) if native_id else ()
    if len(found) > 1:
        ids = ", ".join(person.id for person in found)
        raise UsageError(f"{name!r:.60} is several people, under different accounts of ours", hint=f"One of {ids}.")
    if not found:
        raise UsageError(f"there is no person {name!r:.60}", hint="`hermes people list` shows them.")
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
    output.page("\n".join(f"{output.style(f'{name:<9}', 'dim')}{text.harmless(value)}" for name, value in facts))


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
            raise UsageError(f"{platform} {args.user!r:.60} is nobody's", hint="`hermes people list` shows accounts.")
    print(f"{text.harmless(f'{platform} {args.user}')} is nobody's any more, and stays out.")


def _zone(args: argparse.Namespace) -> None:
    with store.open_store() as db:
        person = _find(db, args.person)
        db.people.set_zone(person.id, args.zone)
    print(f"{_named(person)} lives in {args.zone or 'the zone of this machine'}.")


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
        raise UsageError(f"{name!r:.60} is no id", hint="Write the id as the platform has it, without spaces.")
    return name
