"""`hermes doctor`: checks the installation and prints the exact fix for every problem.

Every check is one line, ✓ ⚠ or ✗, and every ⚠ and ✗ has advice below it: a command to copy, or a sentence. `--fix` runs
the fixes that cannot lose anything and checks again. Nothing leaves the machine unless `--online` is given, which tests
the model's server and the platforms.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from hermes_agent import home_inventory
from hermes_agent.home_inventory import HomeEntry
from hermes_cli.doctor import config as doctor_config
from hermes_cli.doctor import machine
from hermes_cli.doctor import store as doctor_store
from hermes_cli.doctor.fixes import CheckContext, CheckResult, problem, problem_of
from hermes_cli.framework import output, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, add_json
from hermes_cli.maintenance import inventory_table
from hermes_config import config, logs
from hermes_config.errors import ConfigError, HermesError
from hermes_config.home import hermes_home
from hermes_state.errors import StateError

_MACHINE = (
    machine.sqlite, machine.other_version, machine.folder, machine.files, machine.file_system, machine.disk,
    machine.clock, doctor_config.configuration,
)  # fmt: skip
_CONFIGURATION = (
    doctor_config.inventory, doctor_config.executor, doctor_config.model, doctor_config.other_models,
    doctor_config.prices, doctor_config.web, doctor_config.platforms, doctor_config.api, doctor_config.hooks,
    doctor_config.plugins,
    doctor_config.mcp_servers,
)  # fmt: skip
"""These checks also get the configuration; skipped when it does not load."""
_STORE = (
    doctor_store.clock, doctor_store.writing, doctor_store.backups, doctor_store.turns, doctor_store.deliveries,
)  # fmt: skip
"""These checks also get the open store; skipped when there is none. The database check reports errors of the store."""
_MARKS = {"ok": ("✓", "green"), "warning": ("⚠", "yellow"), "problem": ("✗", "red")}


def register(parser: Parser) -> None:
    parser.add_examples(
        "", "--fix      run the fixes that cannot lose data",
        "--online   also test the model and the platforms", "--json",
    )  # fmt: skip
    parser.epilog = f"{parser.epilog}\n\nexit code: 1 when there is a problem (✗), else 0; warnings (⚠) do not count"
    parser.add_argument("--fix", action="store_true", help="run the fixes that cannot lose data")
    parser.add_argument("--online", action="store_true", help="also test the model's server and the platforms")
    add_json(parser)
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> CommandAnswer:
    logs.install()  # so that plug-ins and platforms do not log into the report
    results = examine(online=args.online)
    fixed: list[str] = []
    if args.fix and any(one.repair for one in results):
        fixed = list(_fix(results))
        results = examine(online=args.online)
    wrong = any(one.mark == "problem" for one in results)
    rows = [
        {"check": one.check, "mark": one.mark, "says": one.says, "fix": one.fix, "advice": one.advice,
         "mendable": one.repair is not None}
        for one in results
    ]  # fmt: skip
    entries = _entries()
    document = {
        "home": str(hermes_home()), "ok": not wrong, "checks": rows, "mended": fixed,
        "entries": inventory_table.document(entries),
    }  # fmt: skip
    sentences = [f"fixed: {line}" for line in fixed]
    drawn = "\n".join(_lines(results))
    if any(one.use != "used" for one in entries):
        drawn += f"\n\n{inventory_table.drawn(entries)}"
    return CommandAnswer(document, *sentences, drawn=drawn, pages=False, code=1 if wrong else 0)


def _entries() -> list[HomeEntry]:
    """Return the entries of the home; none when its configuration does not load, which a check reports."""
    try:
        return home_inventory.of(config.load())
    except ConfigError:
        return []


def examine(*, online: bool = False) -> list[CheckResult]:
    """Run all checks and return their results. The store is opened once for all of them."""
    home = hermes_home()
    try:
        context = CheckContext(home=home, config=config.load(home), online=online)
    except ConfigError as error:
        context = CheckContext(home=home, config=None, config_error=error, online=online)
    # Run these before the store is open: SQLite makes temporary files that the machine checks would see.
    results = [one for check in _MACHINE for one in _results(check, context)]
    with ExitStack() as stack:
        if context.has_store:
            try:
                opened = store.open_store(write_wait_ms=doctor_store.WRITE_WAIT_MS, says_waits=False)
                context = replace(context, db=stack.enter_context(opened))
            except HermesError as error:
                context = replace(context, store_error=error)
        if context.config is not None:
            results += [one for check in _CONFIGURATION for one in _results(check, context, context.config)]
        results += _results(doctor_store.database, context)
        if context.db is not None:
            results += [one for check in _STORE for one in _results(check, context, context.db)]
        return [*results, *_results(doctor_store.gateway, context)]


def _results(check: Callable[..., Iterator[CheckResult]], *given: Any) -> Iterator[CheckResult]:
    """Run one check; a check that fails is itself a problem."""
    context: CheckContext = given[0]
    name = check.__name__.replace("_", "-")
    try:
        yield from check(*given)
    except HermesError as error:
        if not (check in _STORE and isinstance(error, StateError)):
            yield problem_of(name, error)
    except OSError as error:  # a file that vanished or cannot be read
        yield problem(name, f"could not be checked: {error.strerror} ({error.filename or context.home})")


def _fix(results: Iterable[CheckResult]) -> Iterator[str]:
    done = set()
    for one in results:
        if one.repair is None or one.fix in done:
            continue
        done.add(one.fix)
        try:
            one.repair()
        except (HermesError, OSError):  # the next check finds it again, with its advice
            continue
        yield one.says


def _lines(results: list[CheckResult]) -> Iterator[str]:
    wide = max(len(one.check) for one in results) + 2
    columns = shutil.get_terminal_size().columns - wide - 2 if output.is_terminal() else None
    indent = f"  {'':<{wide}}"
    for one in results:
        sign, colour = _MARKS[one.mark]
        first, *more = text.wrapped(one.says, columns)
        yield f"{output.style(sign, colour)} {one.check:<{wide}}{first}"
        yield from (f"{indent}{line}" for line in more)
        if one.fix:  # never wrapped: people copy it
            yield f"{indent}→ {output.style(text.harmless(one.fix), 'bold')}"
        yield from (f"{indent}  {line}" for line in text.wrapped(one.advice, None if columns is None else columns - 2))
    count = {mark: sum(one.mark == mark for one in results) for mark in _MARKS}
    said = [text.counted(count[mark], mark) for mark in ("problem", "warning") if count[mark]]
    yield f"\n{' and '.join(said) if said else 'No problems found'}."
    if any(one.repair for one in results):
        yield "hermes doctor --fix runs the fixes that cannot lose data."
