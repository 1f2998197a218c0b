"""The operators' page of limits, made from `hermes_config.limits` by `make docs`."""

from __future__ import annotations

from hermes_config.limits import DEFAULTS
from hermes_config.schema import Setting, Whole
from hermes_config.sections import table

_KIB = 1024
_SIZES = ((_KIB**3, "GiB"), (_KIB**2, "MiB"), (_KIB, "KiB"))


def _amount(row: Setting) -> str:
    if row.kind.name == "bytes":
        for size, name in _SIZES:
            if row.default >= size:
                return f"{row.default // size} {name}"
    return f"{row.default:,} {row.kind.name}"


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
        "cannot be changed.",
    ]
    area = ""
    rows = [row for row in table().rows.values() if row.key.startswith("limits.")]
    for row in rows:
        assert isinstance(row.kind, Whole)
        if row.area != area:
            area = row.area
            lines += [
                "",
                f"## {area}",
                "",
                "| name | default | smallest | at the bound |",
                "|---|--:|--:|---|",
            ]
        smallest = "fixed" if row.fixed else f"{row.kind.least:,}"
        lines.append(f"| `{row.key.removeprefix('limits.')}` | {_amount(row)} | {smallest} | {row.about} |")
    lines += ["", "This page is made by `make docs` from `src/hermes_config/limits.py`."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
