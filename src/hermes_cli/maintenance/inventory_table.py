"""The table of a home's inventory, as `hermes import hermes`, `hermes config check` and `hermes doctor` print it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hermes_agent import home_inventory
from hermes_agent.home_inventory import HomeEntry
from hermes_cli.framework import output, text


def document(entries: Iterable[HomeEntry]) -> list[dict[str, Any]]:
    """Return the entries for JSON output."""
    return [{"name": one.name, "use": one.use, "about": one.about, "acknowledged": one.acknowledged} for one in entries]


def drawn(entries: Sequence[HomeEntry]) -> str:
    """Draw the table, and the command that accepts open entries."""
    return "\n".join(_lines(entries))


def _lines(entries: Sequence[HomeEntry]) -> Iterator[str]:
    if not entries:
        return
    listed = [one for one in entries if one.use != "used" or one.about]
    if listed:
        cells = [(one.name, one.verdict, one.about) for one in listed]
        yield output.table(output.columns("Entry…24", "Here", "Why…"), cells)
    if used := [one.name for one in entries if one.use == "used" and not one.about]:
        yield from text.wrapped(f"used: {', '.join(used)}", output.window())
    if open_entries := [one for one in entries if one.stops_start]:
        it = "it is" if len(open_entries) == 1 else "they are"
        yield f"Hermes does not start until {it} acknowledged by name:"
        yield f"  {text.harmless(home_inventory.command(open_entries))}"
