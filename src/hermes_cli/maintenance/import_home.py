"""`hermes import hermes PATH`: import a hermes-agent home. The other home is only read.

Conversations are imported. Everything that gives rights or runs (owners, allow lists, approvals, routes, hooks,
plug-ins, servers, jobs) is listed, and the owner chooses from the list; `--yes` alone imports none of it.

The report names the imported, existing, set aside and left entries, with reasons. A dry run reads the same data and
writes nothing, not even in our own home.
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent import home_inventory
from hermes_agent.home_inventory import HomeEntry
from hermes_cli.framework import prompts, store, text
from hermes_cli.framework.output import CommandAnswer, Progress
from hermes_cli.framework.parser import Parser, Verbs
from hermes_cli.maintenance import inventory_table
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import ensure_folder, ensure_home, hermes_home
from hermes_state import SessionDB
from hermes_state.transfer.import_home import home_files, in_use, rights, scan, source, write
from hermes_state.transfer.import_home.home_files import NOT_TAKEN, HomeFile
from hermes_state.transfer.import_home.rights import HomeConfig, RightsOffer
from hermes_state.transfer.import_home.scan import HomeScan
from hermes_state.transfer.import_home.source import AgentHome

_SHOWN = 10
_TABLE = "How Hermes uses the rest of that home, as far as you import it:"
_ASKED = "Imported only if you choose it (Hermes asks, or --take names it):"


def register(parser: Parser) -> None:
    hermes = Verbs(parser).add(
        "hermes", _run, "import a hermes-agent home; that home is not changed",
        "~/.hermes --dry-run", "$ HERMES_HOME=~/.hermes-new hermes import hermes ~/.hermes", json=True, yes=True,
    )  # fmt: skip
    hermes.add_argument("path", metavar="PATH", help="the other home, or its state.db")
    take = "what else to import: all, or some of the kinds that --dry-run lists (a,b)"
    hermes.add_argument("--take", metavar="KINDS", help=take)
    hermes.add_argument("--dry-run", action="store_true", help="only show what would be imported")


def _run(args: argparse.Namespace) -> CommandAnswer:
    in_use.refuse_hermes_agent_installed()
    home = source.find(Path(args.path).expanduser())
    _refuse_own(home)
    if home.whole:
        in_use.refuse_in_use(home.folder)
    opened = None if home.database is None else source.HomeDatabase(home.database)
    try:
        found = scan.scan_home(home, opened)
        facts = _look(found, _kinds(args.take)) if args.dry_run else _bring(found, args)
    finally:
        if opened is not None:
            opened.close()
    table = inventory_table.drawn([HomeEntry(**row) for row in facts["entries"]])
    return CommandAnswer(facts, *_report(facts), drawn=f"\n{_TABLE}\n{table}" if table else "", pages=False)


def _refuse_own(home: AgentHome) -> None:
    ours = store.database_file(store.address())
    same = [(home.folder, hermes_home()), (home.database, ours)]
    if any(a is not None and b is not None and os.path.realpath(a) == os.path.realpath(b) for a, b in same):
        hint = "Set HERMES_HOME to a new folder and repeat, or convert it in place with hermes state upgrade."
        raise UsageError("this is the home that Hermes itself uses now", where=str(home.folder), hint=hint)


def _kinds(wanted: str | None) -> frozenset[str] | None:
    """Return the kinds that `--take` names; None without `--take`."""
    if wanted is None:
        return None
    named = {word.strip().lower() for word in wanted.split(",")} - {""}
    if "all" in named:
        return frozenset(rights.KINDS)
    if wrong := sorted(named - rights.KINDS.keys()):
        raise UsageError(f"--take: there is no {wrong[0]!r:.40}", hint=f"Some of {', '.join(rights.KINDS)}; or all.")
    return frozenset(named)


class _Selection(NamedTuple):
    """The entries besides conversations that can be imported, and the chosen ones."""

    offers: list[RightsOffer]
    taken: frozenset[str]
    files: list[HomeFile]
    read: HomeConfig
    entries: list[HomeEntry]

    def facts(self) -> dict[str, Any]:
        rows = [{"kind": one.kind, "entries": one.entries, "taken": one.kind in self.taken} for one in self.offers]
        notes = [*self.read.problems, *filter(None, [rights.backend_note(self.read)])]
        entries = inventory_table.document(self.entries)
        return {"rights": rows, "notes": notes, "entries": entries}


def _choose(found: HomeScan, target: Path, wanted: frozenset[str] | None, *, ask: bool = False) -> _Selection:
    whole = found.home.whole
    files = home_files.plan(found.home.folder, target) if whole else []
    read = rights.read(found.home.folder) if whole else rights.HomeConfig()
    offers = rights.offers(found, read, files)
    taken = wanted or frozenset()
    if wanted is None and ask and offers:
        taken = _ask_which(offers)
    entries = _inventory(found.home.folder, read) if whole else []
    return _Selection(offers, taken, home_files.without(files, taken), read, entries)


def _inventory(folder: Path, read: HomeConfig) -> list[HomeEntry]:
    """Return the entries of the other home as they would be after the import, with its hooks enabled and jobs taken."""
    tree = dict(read.data or {})
    if names := rights.hook_names(folder):
        given = tree.get("hooks")
        tree["hooks"] = {**(given if isinstance(given, Mapping) else {}), "enabled": names}
    return home_inventory.inventory(folder, tree, read.variables or {}, jobs_taken=True)


def _ask_which(offers: list[RightsOffer]) -> frozenset[str]:
    """Ask one question about the whole list."""
    print("That home also has entries that give rights or run code. Choose which to import:")
    for number, one in enumerate(offers, 1):
        print(f"  {number:>2}. {one.kind:<10} {rights.KINDS[one.kind]}")
        for entry in one.entries:
            print(f"      {'':<10} · {text.harmless(entry)}")
    names = [one.kind for one in offers]
    while True:
        said = prompts.question("Import which?", "Enter: none; all; or numbers such as 1,3").lower()
        words = said.replace(",", " ").split()
        if words == ["all"]:
            return frozenset(names)
        if all(word.isdecimal() and 0 < int(word) <= len(names) for word in words):
            return frozenset(names[int(word) - 1] for word in words)
        print("Please type all, or numbers from the list.")


def _look(found: HomeScan, wanted: frozenset[str] | None) -> dict[str, Any]:
    choice = _choose(found, hermes_home(), wanted)
    files = choice.files
    more = choice.facts()
    address = store.address()
    file = store.database_file(address)
    if file is not None and not file.exists():  # a dry run must not create it
        return write.facts(found, files=files) | more
    db = SessionDB(address, read_only=True)
    try:
        return write.facts(found, files=files, differences=write.compare(db, found)) | more
    finally:
        db.close()


def _bring(found: HomeScan, args: argparse.Namespace) -> dict[str, Any]:
    wanted = _kinds(args.take)
    question = f"Import {len(found.sessions):,} sessions with {found.messages:,} messages into {hermes_home()}?"
    prompts.confirm(question, yes=args.yes)
    choice = _choose(found, hermes_home(), wanted, ask=not args.yes)
    target = ensure_home()
    with store.open_store(create=True) as db, Progress("importing", unit="messages") as progress:
        differences = write.compare(db, found)
        done = write.write_home(db, found, routes="routes" in choice.taken, tick=progress.update)
    texts = {
        "config.yaml": rights.config_text(choice.read, choice.taken),
        ".env": rights.env_text(choice.read, choice.taken),
    }
    unread = home_files.copy(found.home.folder, target, choice.files, texts)
    jobs = _take_jobs(target) if "jobs" in choice.taken else []
    if "hooks" in choice.taken and (names := rights.hook_names(target)):
        config.set_value("hooks.enabled", names)  # they ran there, and the owner chose them
    came = [item for item in choice.files if item.left or texts.get(item.name, "") is not None]
    facts = write.facts(found, done=done, differences=differences, files=came, unread=unread) | choice.facts()
    facts["jobs"] = jobs
    facts["servers"] = _take_servers(target, ask=not args.yes) if "servers" in choice.taken else []
    folder = ensure_folder("import") / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
    write.keep(folder, found, done, facts)
    return facts | {"report": str(folder)}


def _take_jobs(target: Path) -> list[str]:
    """Let Hermes run the imported jobs; returns what it says about them."""
    from hermes_agent import jobs_file
    from hermes_cli.operate.cron import taken_lines

    file = target / "cron" / "jobs.json"
    if not file.exists():
        return []
    try:
        with store.open_store() as db:
            return taken_lines(jobs_file.take(db, config.load(target), file))
    except (OSError, ValueError) as error:
        return [f"Not taken: cron/jobs.json cannot be read: {type(error).__name__}."]


def _take_servers(target: Path, *, ask: bool) -> list[str]:
    """Confirm what the imported MCP servers need beyond their own folder; they run confined here. Returns notes."""
    from hermes_agent.mcp.servers import configured, proposed_needs
    from hermes_cli.operate.mcp import confirmed_needs

    notes = []
    for name, server in configured(config.load(target)).items():
        settings = server.settings
        if not settings.command:
            continue
        env = {str(key): str(value) for key, value in settings.env.items()}
        proposed = proposed_needs(settings.command, settings.args, env)
        chosen = confirmed_needs(f"the MCP server {name}", proposed) if ask else []
        if chosen:
            config.set_value(("mcp_servers", name, "needs"), chosen, target)
        if left := [need for need in proposed if need not in chosen]:
            wanted = shlex.quote(f"[{', '.join((*chosen, *left))}]")
            notes.append(
                f"{name} runs confined and probably needs {', '.join(left)}:"
                f" hermes config set mcp_servers.{name}.needs {wanted}"
            )
    return notes


# -- words -------------------------------------------------------------------------------------------------------


def _report(facts: dict[str, Any]) -> list[str]:
    """The report for a person."""
    brought, found = facts["brought"], facts["found"]
    verb = "Would import" if brought is None else "Imported"
    counts = found if brought is None else brought
    schema = "no database" if facts["schema"] is None else f"schema {facts['schema']}"
    people = "1 person" if counts["people"] == 1 else f"{counts['people']:,} people"
    lines = [
        f"{verb} from {facts['home']} ({schema}, {text.size(facts['database_bytes'])})",
        f"  {text.counted(counts['sessions'], 'session')} in {text.counted(counts['conversations'], 'conversation')}",
        f"  {text.counted(counts['messages'], 'message')}, {text.counted(counts['routes'], 'route')}, {people}",
    ]
    if found["by_source"]:
        lines.append("  found: " + ", ".join(f"{count:,} {source}" for source, count in found["by_source"].items()))
    if facts["files"]:
        names = [f"{item['name']} ({text.size(item['size'])})" for item in facts["files"]]
        lines.append(f"  files: {', '.join(names)}")
    lines += _rights(facts)
    lines += [f"Jobs: {line}" for line in facts.get("jobs", ())]
    lines += [f"MCP server: {line}" for line in facts.get("servers", ())]
    lines += _there_already(facts)
    lines += problem_lines(facts)
    lines += _list("Could not be copied:", [f"{name}: {why}" for name, why in facts["unread"].items()])
    tables = [f"table {name} ({text.counted(count, 'row')})" for name, count in facts["other_tables"].items() if count]
    columns = [f"{table}.{name}" for table, names in facts["other_columns"].items() for name in names]
    lines += _list("Kept but not used:", tables + columns)
    behind = {name: why for name, why in facts["left"].items() if not why.startswith(NOT_TAKEN)}  # they are in the list
    lines += _list("Not imported:", [f"{name}: {why}" for name, why in behind.items()])
    if "report" in facts:
        lines.append(f"The full report and the entries set aside: {facts['report']}")
    return [*lines, "The other home was not changed."]


def _rights(facts: dict[str, Any]) -> list[str]:
    """List the imported and the left entries that give rights, and how to import the rest."""
    taken = [one for one in facts["rights"] if one["taken"]]
    left = [one for one in facts["rights"] if not one["taken"]]
    undecided = facts["brought"] is None and not taken
    lines = [f"Note: {note}." for note in facts["notes"]]
    for title, rows in (("Also imported:", taken), (_ASKED if undecided else "Not imported:", left)):
        if rows:
            lines += [title, *(f"  {one['kind']}: {'; '.join(one['entries'])}" for one in rows)]
    if left and not undecided:
        kinds = ",".join(one["kind"] for one in left)
        path = shlex.quote(facts["home"])
        lines.append(f"To import it: hermes import hermes {path} --take {kinds} (or without --yes, and Hermes asks)")
    return lines


def problem_lines(facts: dict[str, Any]) -> list[str]:
    return _list("Changed by the import:", [f"{p['kind']} {p['which']}: {p['why']}" for p in facts["problems"]])


def _there_already(facts: dict[str, Any]) -> list[str]:
    lines = []
    if facts["skipped"]:
        lines.append(f"Already here and not changed: {len(facts['skipped']):,} sessions")
    if facts["brought"] and facts["brought"]["routes_kept"]:
        lines.append(f"Routes of this home that were kept instead of theirs: {facts['brought']['routes_kept']:,}")
    here = [
        f"{one['session_id']}: {one['how']} ({one['here']:,} messages here, {one['there']:,} there)"
        for one in facts["different"]
    ]
    return lines + _list("In both, and different:", here)


def _list(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    shown = [f"  {entry}" for entry in entries[:_SHOWN]]
    more = len(entries) - len(shown)
    return [title, *shown, *([f"  … and {more:,} more"] if more else [])]
