"""`hermes people` (known people, their accounts, roles and time zones) and `hermes pairing` (approving new people)."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from gateway.access.authorisation import API, Principal, Surface, api_client, decide, is_stable
from gateway.platforms import registry
from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, add_offset, example_platform
from hermes_config import accounts
from hermes_config.errors import UsageError
from hermes_state import SessionDB
from hermes_state.ids import LOCAL_OWNER, PersonId
from hermes_state.people.people import Person

_ROLES = ("owner", "admin", "member", "guest")
_COLUMNS = output.columns("Name…", "Role", "Accounts…20", "Zone", "Person")


def register(parser: Parser) -> None:
    verbs = Verbs(parser)
    listing = verbs.add(
        "list", _list, "list known people, in the order of their first message",
        "", "--limit 100 --offset 100 --json", db=True, json=True, limit=50,
    )  # fmt: skip
    add_offset(listing)
    show = verbs.add("show", _show, "show one person", "{platform}:42", db=True, json=True)
    role = verbs.add(
        "role", _role, "set a role: owner and admin may use every tool, member and guest neither terminal nor files",
        "{platform}:42 admin", db=True,
    )  # fmt: skip
    link = verbs.add(
        "link", _link, "link an account to a person and give it access",
        "owner {platform} 42    # my own account", "{platform}:42 slack U123 --account T777",
    )  # fmt: skip
    unlink = verbs.add("unlink", _unlink, "unlink an account; it loses access", "{platform} 42")
    zone = verbs.add(
        "zone", _zone, "set the time zone of a person; without ZONE, use the machine's",
        "owner Europe/Lisbon", "{platform}:42", db=True,
    )  # fmt: skip
    for verb in (show, role, link, zone):
        verb.add_argument("person", metavar="PERSON", help="owner, a person's id, or an account such as {platform}:42")
    role.add_argument("role", choices=_ROLES, metavar="ROLE", help=", ".join(_ROLES))
    for verb in (link, unlink):
        verb.add_argument("platform", metavar="PLATFORM")
        verb.add_argument("user", metavar="ID", help="the id on the platform, not a name")
        verb.add_argument("--account", default="", metavar="NAME", help="only for this id of our own (default: any)")
    zone.add_argument("zone", nargs="?", metavar="ZONE", help="an IANA name")


def _find(db: SessionDB, name: str) -> Person:
    """Find a person by id or account; never by name, since several people may share a name."""
    if name == LOCAL_OWNER:
        return db.people.owner()
    if (known := db.people.get(PersonId(name))) is not None:
        return known
    platform, _, native_id = name.partition(":")
    found = db.people.known_as(platform=platform.lower(), native_id=native_id) if native_id else ()
    if len(found) > 1:
        ids = ", ".join(person.id for person in found)
        raise UsageError(
            f"{name!r:.60} matches several people, under different bot accounts", hint=f"Use one of {ids}."
        )
    if not found:
        raise UsageError(f"there is no person {name!r:.60}", hint="hermes people list shows them.")
    return found[0]


def _list(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    total = db.people.count()
    rows = [_facts(db, person) for person in db.people.list(limit=args.limit, offset=args.offset)]
    cells = []
    for row in rows:
        accounts = ", ".join(f"{one['platform']}:{one['native_id']}" for one in row["accounts"])
        cells.append((row["display_name"] or "—", row["role"], accounts or "—", row["zone"] or "—", row["id"]))
    nothing = f"There are {total:,} people." if total else "Nobody is known yet."
    more = total > args.offset + len(rows)
    notes = [f"{len(rows)} of {total:,} shown; --limit and --offset show others."] if more else []
    return output.list_answer(rows, _COLUMNS, cells, nothing=nothing, notes=notes)


def _facts(db: SessionDB, person: Person) -> dict[str, Any]:
    return {**asdict(person), "accounts": [asdict(identity) for identity in db.people.identities(person.id)]}


def _show(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from gateway.access.policy import PolicyKeeper

    row, policy = _facts(db, _find(db, args.person)), PolicyKeeper(db).current()
    for one in row["accounts"]:
        platform, account = one["platform"], one["account"]
        who, where = Principal("user", platform, one["native_id"], account), Surface("dm", platform, account=account)
        if platform == API:
            who, where = api_client(one["native_id"])
        answer = decide(who, where, "speak", None, policy)
        at_home = platform == "local"
        one["allowed"], one["why"] = at_home or answer.allowed, "at this machine" if at_home else answer.reason
        one["role"] = "owner" if at_home else answer.role
    facts = [("person", row["id"]), ("name", row["display_name"] or "—"), ("role", row["role"])]
    facts += [("zone", row["zone"] or "the machine's"), ("met", text.when(row["created_at"]))]
    for one in row["accounts"]:
        state = f"has access as {one['role']}: {one['why']}" if one["allowed"] else f"has no access: {one['why']}"
        facts.append(("account", f"{one['platform']}:{one['native_id']} {state}"))
    return CommandAnswer(row, drawn=output.facts(facts, wide=9))


def _role(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    person = _find(db, args.person)
    db.people.set_role(person.id, args.role)
    return CommandAnswer(None, f"{_named(person)} is {args.role} from the next message on.")


def _link(args: argparse.Namespace) -> CommandAnswer:
    platform = _platform(args.platform, "{} has no accounts")
    if not is_stable(args.user):
        hint = "Write the id as the platform has it, without spaces."
        raise UsageError(f"{args.user!r:.60} is not an id", hint=hint)
    with store.open_store(create=args.person == "owner") as db:
        person = _find(db, args.person)
        db.pairings.link(person.id, platform=platform, native_id=args.user, account=args.account)
    return CommandAnswer(None, f"{platform} {args.user} is {_named(person)} and has access as {person.role}.")


def _unlink(args: argparse.Namespace) -> CommandAnswer:
    platform = _platform(args.platform, "{} has no accounts")
    with store.open_store() as db:
        if not db.pairings.unlink(platform=platform, native_id=args.user, account=args.account):
            what = f"{platform}:{args.user:.60} is not linked to anyone"
            raise UsageError(what, hint="hermes people list shows accounts.")
    return CommandAnswer(None, f"{platform} {args.user} is no longer linked to anyone and has no access.")


def _zone(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    person = _find(db, args.person)
    db.people.set_zone(person.id, args.zone)
    return CommandAnswer(None, f"{_named(person)} has the time zone {args.zone or 'of this machine'}.")


def _named(person: Person) -> str:
    return f"{person.display_name} ({person.id})" if person.display_name else person.id


def _platform(name: str, refusal: str, *, api: bool = True) -> str:
    """Return the stored name of a platform, in lower case; plug-ins may add some, and `api` allows the HTTP API."""
    found = name.strip().lower()
    if fault := accounts.fault(found):
        raise UsageError(fault, hint=f"Write for example {example_platform()}@work.")
    if not found or found == "local" or (found == API and not api):
        raise UsageError(refusal.format(f"{name!r:.40}"), hint=f"Name a chat platform, such as {example_platform()}.")
    return found


_NOBODY = "nobody is paired on {}"
_WAITING = output.columns("Platform", "Name…", "ID", ">Asked", ">Code ends")
_PAIRED = output.columns("Platform", "Name…", "ID", "Role", "State", "Person")
_ROLE_OPTIONS = {
    "owner": "this is you, the person at this machine",
    "admin": "may use every tool, the terminal too",
    "member": "may talk, without terminal and files (the default)",
    "guest": "may talk, and Hermes remembers nothing of them",
}


def register_pairing(parser: Parser) -> None:
    verbs = Verbs(parser)
    about = "list people who wait for approval, were approved or were revoked"
    verbs.add("list", _list_pairing, about, "", "--json", db=True, json=True)
    approve = verbs.add(
        "approve", _approve, "give access to the person with this code, as a member unless an option says otherwise",
        "{platform} K7QM2XPA", "{platform} K7QM2XPA --owner   # that is me", db=True, json=True,
    )  # fmt: skip
    approve.add_argument("platform", metavar="PLATFORM", help="the platform they write from, such as {platform}")
    approve.add_argument("code", metavar="CODE", help="the code that Hermes gave them")
    roles = approve.add_mutually_exclusive_group()
    for role, meaning in _ROLE_OPTIONS.items():
        roles.add_argument(f"--{role}", dest="role", action="store_const", const=role, help=meaning)
    revoke = verbs.add(
        "revoke", _revoke, "revoke a person's access from their next message on, even if an allow list names them",
        "{platform} 42", "slack U123 --account T777", "api_server 5d4c0b…   # a key of the API", db=True, json=True,
    )  # fmt: skip
    revoke.add_argument("platform", metavar="PLATFORM")
    revoke.add_argument("user", metavar="ID", help="their id on the platform; hermes pairing list shows it")
    revoke.add_argument("--account", metavar="NAME", help="only for this id of our own (default: any)")
    clear = verbs.add(
        "clear-pending", _clear, "invalidate all open codes",
        "", "{platform} --yes", db=True, json=True, yes=True,
    )  # fmt: skip
    clear.add_argument("platform", nargs="?", metavar="PLATFORM", help="of one platform only")


def _list_pairing(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    waiting = db.pairings.pending()
    standings = sorted(db.pairings.standings()[1], key=lambda row: (row.platform, row.native_id, row.account))
    known = [row for row in standings if row.state != "seen"]
    platforms = sorted({row.platform for row in waiting} | {row.platform for row in known})
    locked = {platform: until for platform in platforms if (until := db.pairings.locked_until(platform))}
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
        parts.append(f"{platform} accepts no codes after too many wrong ones; again {text.ago(until)}.")
    pending, paired = [row._asdict() for row in waiting], [row._asdict() for row in known]
    shown = "\n".join(parts).strip() or "Nobody is waiting, and nobody is paired yet."
    return CommandAnswer({"pending": pending, "known": paired, "locked": locked}, drawn=shown)


def _approve(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from gateway.access.pairing import Pairing

    platform = _platform(args.platform, _NOBODY, api=False)
    if not any(row.platform == platform for row in db.pairings.pending()):
        registry.descriptor(platform)  # raises if there is no such platform
    done = Pairing(db).approve(platform, args.code, role=args.role)
    request, person = done.request, done.person
    account = f"{request.platform} {request.native_id}"
    name = f"{request.display_name} ({account})" if request.display_name else account
    who = "you" if person.id == LOCAL_OWNER else f"person {person.id}"
    document = {"platform": request.platform, "id": request.native_id, "person": person.id, "role": person.role}
    return CommandAnswer(document, f"{name} may talk to Hermes as {person.role}: {who}.")


def _revoke(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from gateway.access.pairing import Pairing
    from gateway.access.policy import PolicyKeeper

    platform, user = _platform(args.platform, _NOBODY), args.user
    known = any((row.platform, row.native_id) == (platform, user) for row in db.pairings.standings([user])[1])
    who, where = Principal("user", platform, user), Surface("dm", platform, user)
    if not known and not decide(who, where, "speak", None, PolicyKeeper(db).current()).allowed:  # a typing error
        raise UsageError(f"nobody on {platform} has access as {user!r:.60}", hint="hermes pairing list shows the ids.")
    accounts = Pairing(db).revoke(platform, user, account=args.account)
    said = f"{platform} {user} loses access from the next message on. hermes people link gives it back."
    return CommandAnswer({"platform": platform, "id": user, "accounts": list(accounts)}, said)


def _clear(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    platform = None if args.platform is None else _platform(args.platform, _NOBODY, api=False)
    count = sum(1 for row in db.pairings.pending() if platform in (None, row.platform))
    if count:
        prompts.confirm(f"Invalidate {text.counted(count, 'code')}?", yes=args.yes)
    cleared = db.pairings.clear(platform) if count else 0
    return CommandAnswer({"cleared": cleared}, f"{text.counted(cleared, 'code')} invalidated.")
