"""What an import leaves beside the store: the report, and what could not be placed in it.

`<home>/import/<stamp>/` holds `report.json`, `set-aside.json` (entries that were damaged), `lost-messages.jsonl`
(messages whose session is not there) and one `.jsonl` a table that the store has no place for. All of it is private
(0600) and none of it holds a credential that was in a routing entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_config.home import private_open
from hermes_state.reference import records
from hermes_state.reference.importing import Outcome
from hermes_state.reference.survey import Survey


def keep(folder: Path, found: Survey, done: Outcome, report: dict[str, Any]) -> list[Path]:
    """Write the files that have something to say; which ones."""
    folder.mkdir(mode=0o700, parents=True)
    written = []
    if found.set_aside:
        written.append(_write(folder / "set-aside.json", [json.dumps(found.set_aside, ensure_ascii=True, indent=1)]))
    source = found.source
    if source is not None and found.lost_messages:
        lost = (row for batch in source.messages(records.MESSAGE) for row in batch if row[1] not in found.sessions)
        lines = (_line(records.MESSAGE, row) for row in lost)
        written.append(_write(folder / "lost-messages.jsonl", lines))
    for number, (table, count) in enumerate(found.extra_tables.items() if source is not None else ()):
        if count and table not in done.tables and source is not None:
            columns = tuple(source.tables[table])
            plain = "".join(char if char.isalnum() or char == "_" else "-" for char in table)[:60]
            name = f"table-{number}-{plain}.jsonl"
            written.append(_write(folder / name, (_line(columns, row) for row in source.rows(table, columns))))
    written.append(_write(folder / "report.json", [json.dumps(report, ensure_ascii=True, indent=1)]))
    return written


def _line(columns: Iterable[str], row: Iterable[Any]) -> str:
    plain = (value.hex() if isinstance(value, bytes) else value for value in row)
    return json.dumps(dict(zip(columns, plain, strict=True)), ensure_ascii=True)


def _write(path: Path, lines: Iterable[str]) -> Path:
    with private_open(path, "x") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path
