"""`hermes doctor`: is everything as it should be, and if not, exactly what to do.

Every check is one line, ✓ ⚠ or ✗, and every ⚠ and ✗ has its advice below it: a command to run as it stands, or a
sentence. `--fix` does by itself what cannot lose anything and looks again. Nothing leaves the machine unless
`--online` is given, which asks the model's server and the platforms whether they know us.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from hermes_cli.doctor import config as doctor_config
from hermes_cli.doctor import machine, store
from hermes_cli.doctor.fixes import Check, Patient, Seen, problem_of
from hermes_cli.framework import output, text
from hermes_cli.framework.parser import Parser, add_json
from hermes_config import config, logs
from hermes_config.errors import ConfigError, HermesError
from hermes_config.home import hermes_home

CHECKS: tuple[Check, ...] = (
    machine.sqlite, machine.reference, machine.folder, machine.files, machine.file_system,
    machine.disk, machine.clock, doctor_config.configuration, doctor_config.executor, doctor_config.model,
    doctor_config.platforms, doctor_config.api, doctor_config.hooks, doctor_config.plugins, store.database,
    store.clock, store.writing, store.backups, store.turns, store.deliveries,
    store.gateway,
)  # fmt: skip
_NARROWEST = 20
_MARKS = {"ok": ("✓", "green"), "warning": ("⚠", "yellow"), "problem": ("✗", "red")}


def register(parser: Parser) -> None:
    parser.epilog = (
        "examples:\n  hermes doctor\n  hermes doctor --fix      mend what can be mended without losing anything"
        "\n  hermes doctor --online   ask the model and the platforms, too\n  hermes doctor --json"
        "\n\nends with 1 when there is a problem (✗); a warning (⚠) alone ends with 0"
    )
    parser.add_argument("--fix", action="store_true", help="mend what can be mended without losing anything")
    parser.add_argument("--online", action="store_true", help="also ask the model's server and the platforms")
    add_json(parser)
    parser.set_defaults(run=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    logs.install()  # what a plug-in or a platform says while it is looked at belongs there, not into the report
    seen = examine(online=args.online)
    mended: list[str] = []
    if args.fix and any(one.mend for one in seen):
        mended = list(_mend(seen))
        seen = examine(online=args.online)
    wrong = any(one.mark == "problem" for one in seen)
    if args.json:
        rows = [
            {"check": one.check, "mark": one.mark, "says": one.says, "fix": one.fix, "advice": one.advice,
             "mendable": one.mend is not None}
            for one in seen
        ]  # fmt: skip
        output.print_json({"home": str(hermes_home()), "ok": not wrong, "checks": rows, "mended": mended})
        return 1 if wrong else 0
    for line in mended:
        print(text.harmless(f"mended: {line}"))
    print("\n".join(_lines(seen)))
    return 1 if wrong else 0


def examine(*, online: bool = False) -> list[Seen]:
    """All that the checks see. One that cannot be made is itself a finding."""
    home = hermes_home()
    try:
        patient = Patient(home=home, config=config.load(home), online=online)
    except ConfigError as error:
        patient = Patient(home=home, config=None, trouble=error, online=online)
    return [one for check in CHECKS for one in _looked(check, patient)]


def _looked(check: Check, patient: Patient) -> Iterator[Seen]:
    try:
        yield from check(patient)
    except HermesError as error:
        yield problem_of(check.__name__.replace("_", "-"), error)
    except OSError as error:  # a file that vanished or cannot be read
        says = f"could not be looked at: {error.strerror} ({error.filename or patient.home})"
        yield Seen(check=check.__name__.replace("_", "-"), mark="problem", says=says)


def _mend(seen: Iterable[Seen]) -> Iterator[str]:
    done = set()
    for one in seen:
        if one.mend is None or one.fix in done:
            continue
        done.add(one.fix)
        try:
            one.mend()
        except (HermesError, OSError):  # it is found again by the look that follows, with its advice
            continue
        yield one.says


def _lines(seen: Iterable[Seen]) -> Iterator[str]:
    shown = list(seen)
    wide = max(len(one.check) for one in shown) + 2
    for one in shown:
        sign, colour = _MARKS[one.mark]
        first, *more = _wrapped(one.says, wide + 2)
        yield f"{output.style(sign, colour)} {one.check:<{wide}}{first}"
        yield from (f"  {'':<{wide}}{line}" for line in more)
        if one.fix:  # never broken into lines: it is there to be copied
            yield f"  {'':<{wide}}→ {output.style(text.harmless(one.fix), 'bold')}"
        yield from (f"  {'':<{wide}}  {line}" for line in _wrapped(one.advice, wide + 4))
    count = {mark: sum(one.mark == mark for one in shown) for mark in _MARKS}
    said = [text.counted(count[mark], mark) for mark in ("problem", "warning") if count[mark]]
    yield f"\n{' and '.join(said) if said else 'Everything is in order'}."
    if any(one.mend for one in shown):
        yield "hermes doctor --fix mends what can be mended without losing anything."


def _wrapped(words: str, indent: int) -> list[str]:
    """Lines that fit beside an indent; in a pipe, one line."""
    import shutil
    import textwrap

    if not output.is_terminal() or not words:
        return [text.harmless(words)] if words else []
    room = max(_NARROWEST, shutil.get_terminal_size().columns - indent)
    return textwrap.wrap(text.harmless(words), room, break_long_words=False, break_on_hyphens=False)
