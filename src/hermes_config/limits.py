"""The table of limits: every bound in Hermes, its unit, and what happens when it is reached.

The fields of `Limits` are the table. A row may be changed under `limits:` in config.yaml by its own name,
and `limits()` gives the values in force. `docs/operators/limits.md` is made from this module by `make
docs`. A number that bounds something and does not stand here is a defect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import NamedTuple

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB


class Limit(NamedTuple):
    """One row of the table."""

    name: str
    default: int
    unit: str
    rule: str
    minimum: int
    area: str
    fixed: bool


def _limit(default: int, unit: str, rule: str, *, minimum: int = 1, area: str = "", fixed: bool = False) -> int:
    # The declared type is the type of the value, as with `dataclasses.field` itself.
    value: int = field(
        default=default,
        metadata={"unit": unit, "rule": rule, "minimum": minimum, "area": area, "fixed": fixed},
    )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The values in force. Frozen: a change of configuration makes a new one."""

    title_chars: int = _limit(100, "characters", "a longer title is refused", area="Conversations")
    message_bytes: int = _limit(64 * _MIB, "bytes", "a larger message is refused, nothing is stored", minimum=64 * _KIB)
    events_per_conversation: int = _limit(2_000, "events", "the oldest events of the conversation are removed")
    replaced_days: int = _limit(
        30,
        "days",
        "rows that an undo, an edit or a compaction replaced are removed by maintenance",
        minimum=0,
    )

    wal_bytes: int = _limit(
        16 * _MIB, "bytes", "the writer checkpoints until the log is below it", minimum=_MIB, area="Storage"
    )
    checkpoint_pages: int = _limit(2_000, "pages", "the writer starts a checkpoint, in small steps", minimum=16)
    writer_queue: int = _limit(4_096, "operations", "the next caller waits until there is room")
    group_commit: int = _limit(256, "operations", "the rest goes into the next transaction")
    write_wait_ms: int = _limit(30_000, "ms", "a write that cannot get the file reports that it is locked")
    checkpoint_wait_ms: int = _limit(50, "ms", "the checkpoint is put off to the next commit", minimum=0)
    writer_cache_kib: int = _limit(16 * _KIB, "KiB", "the page cache of the writing connection", minimum=_KIB)
    reader_connections: int = _limit(8, "connections", "the next reader waits for one to come back")

    query_chars: int = _limit(2_048, "characters", "the rest of a longer query is ignored", area="Search")
    search_catch_up_ms: int = _limit(
        200, "ms", "the rest of the log is scanned instead, and the result says so", minimum=0
    )
    search_rank_window: int = _limit(
        20_000, "matches", "relevance is ranked among the newest matches, and the result says so"
    )

    inbox_done_days: int = _limit(
        30, "days", "finished inbox rows are removed by maintenance", area="Messages in and out"
    )
    refused_inbox_rows: int = _limit(10_000, "rows", "the oldest refusals are removed", minimum=0)
    refused_per_minute: int = _limit(60, "rows", "further refusals are not recorded", minimum=0)
    turn_attempts: int = _limit(3, "attempts", "a turn that keeps dying is parked with a visible notice")
    turns_days: int = _limit(30, "days", "turns that ended are removed by maintenance")
    outbox_sent_days: int = _limit(30, "days", "sent items are removed by maintenance")
    dead_letters: int = _limit(1_000, "items", "the oldest dead letters are removed, and the event log says so")
    delivery_attempts: int = _limit(8, "attempts", "a delivery that keeps failing becomes a dead letter")
    retry_seconds: int = _limit(86_400, "seconds", "a delivery is never put off for longer", minimum=60)
    approvals_days: int = _limit(90, "days", "settled approvals are removed by maintenance")
    effects_days: int = _limit(30, "days", "marks of finished tool effects are removed by maintenance")
    prefix_epochs: int = _limit(50, "epochs", "the oldest prefixes of the conversation are removed")
    prefix_breaks: int = _limit(1_000, "rows", "the oldest breaks are removed; their count stays")

    backups_kept: int = _limit(
        10,
        "backups",
        "automatic backups beyond it are removed, oldest first; those you made stay",
        area="Files",
    )
    import_max_files: int = _limit(100_000, "files", "an archive with more is refused")
    import_max_bytes: int = _limit(64 * _GIB, "bytes", "an archive that unpacks to more is refused", minimum=_MIB)
    import_max_ratio: int = _limit(
        1_000, "times", "an archive that unpacks to more times its size is refused", minimum=10
    )
    import_call_sessions: int = _limit(500, "sessions", "`import_sessions` refuses a longer list, nothing is stored")
    import_call_messages: int = _limit(50_000, "messages", "`import_sessions` refuses more, nothing is stored")
    import_call_bytes: int = _limit(
        25 * _MIB, "bytes", "`import_sessions` refuses more, nothing is stored", minimum=_KIB
    )
    import_session_messages: int = _limit(10_000, "messages", "`import_sessions` refuses a session with more")
    import_session_bytes: int = _limit(5 * _MIB, "bytes", "`import_sessions` refuses a larger session", minimum=_KIB)
    config_bytes: int = _limit(4 * _MIB, "bytes", "a larger config.yaml or .env is refused", fixed=True)
    config_homes: int = _limit(16, "homes", "the configuration read longest ago is read again", fixed=True)
    crash_reports: int = _limit(20, "files", "the oldest crash reports are removed", fixed=True)


def table() -> Iterator[Limit]:
    """The rows, in order. A row without an area of its own belongs to the area above it."""
    area = ""
    defaults = asdict(DEFAULTS)
    for row in fields(Limits):
        area = row.metadata["area"] or area
        about = row.metadata
        yield Limit(row.name, defaults[row.name], about["unit"], about["rule"], about["minimum"], area, about["fixed"])


DEFAULTS = Limits()


def limits() -> Limits:
    """The limits of the current home: the table, with what its config.yaml changes."""
    from hermes_config import config  # config is built from this table

    return config.load().limits


def _amount(row: Limit) -> str:
    if row.unit == "bytes":
        for size, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
            if row.default >= size:
                return f"{row.default // size} {name}"
    return f"{row.default:,} {row.unit}"


def page() -> str:
    """The table as a page of the operators' guide."""
    lines = [
        "# Limits",
        "",
        "Everything in Hermes has a bound, and a rule for what happens there. To change one, in config.yaml:",
        "",
        "```yaml",
        "limits:",
        f"  events_per_conversation: {DEFAULTS.events_per_conversation * 2}",
        "```",
        "",
        "Values are whole numbers in the unit of the row (sizes are in bytes). A misspelt name or a value",
        "below the smallest allowed is refused with the file, the line and the reason. A row marked fixed",
        "holds before a configuration can be read, and is not a setting.",
    ]
    area = ""
    for row in table():
        if row.area != area:
            area = row.area
            lines += [
                "",
                f"## {area}",
                "",
                "| name | default | smallest | at the bound |",
                "|---|--:|--:|---|",
            ]
        smallest = "fixed" if row.fixed else f"{row.minimum:,}"
        lines.append(f"| `{row.name}` | {_amount(row)} | {smallest} | {row.rule} |")
    lines += ["", "This page is made by `make docs` from `src/hermes_config/limits.py`."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
