"""The operators' page of limits, made from `hermes_config.limits` by `make docs`."""

from __future__ import annotations

from hermes_config.limits import DEFAULTS, LimitRow, table

_KIB = 1024
_SIZES = ((_KIB**3, "GiB"), (_KIB**2, "MiB"), (_KIB, "KiB"))


def _amount(row: LimitRow) -> str:
    if row.unit == "bytes":
        for size, name in _SIZES:
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
