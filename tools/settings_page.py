"""The operators' page of all settings, made from `hermes_config.sections` by `make docs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gateway.platforms import registry
from hermes_agent.models import provider_table
from hermes_config.schema import MOST, Kind, Number, Setting
from hermes_config.sections import VARIABLES, table

_INTRODUCTION = """# All settings

*Made from `hermes_config/sections.py` by `make docs`; do not edit.* How files and variables work together is in
[configuration](configuration.md), every key below `limits:` in [limits](limits.md).

Keys are those of `config.yaml`; `hermes config set KEY VALUE` sets one. A variable stands in `.env` or the environment
and counts above the file. `<name>` is a platform, a model, a plug-in … of yours. A dash: there is no default. Keys of
*The gateway* and *Platforms* may also stand under `gateway:`.

A change takes effect at the next turn, in conversations that are open, too. Where the page says *restart*, it takes
effect when the gateway and open terminal windows are started again; so do all limits."""
_SECRETS = """Keys of model providers are variables, of the names the providers use themselves."""
_PLATFORMS = """\
Platforms of plug-ins have fields of their own; `hermes gateway setup NAME` shows them.
A second account of a platform, such as `platforms.telegram@work`, takes the same keys; its variables have the account's
name behind theirs: `TELEGRAM_BOT_TOKEN__WORK` ([more](../users/telegram.md#a-second-bot))."""
_UNUSED = (
    "Homes of hermes-agent have them, with all keys below them. They change nothing here; `hermes config check` names"
    " them ([coming from hermes-agent](../users/coming-from-hermes-agent.md))."
)


def page() -> str:
    rows = [row for row in table().rows.values() if not row.key.startswith("limits.")]
    lines, area = [_INTRODUCTION], ""
    for row in rows:
        if row.unused or not row.about:
            continue
        if row.area != area:
            area = row.area
            lines += [
                "",
                f"## {area}",
                "",
                "| key | kind | default | variable | effect | |",
                "|---|---|---|---|---|---|",
            ]
        lines.append(_line(row))
    lines += ["", "## Variables without a key", "", "| variable | |", "|---|---|"]
    lines += [f"| `{name}` | {about} |" for name, about in VARIABLES.items()]
    lines += ["", "## Keys of providers", "", _SECRETS, ""]
    lines += ["| provider | key | address |", "|---|---|---|", *_providers()]
    lines += ["", "## What platforms take", "", _PLATFORMS, ""]
    lines += ["| platform | key below `platforms.<name>` | variable | |", "|---|---|---|---|", *_platforms()]
    lines += ["", "## Kept, without effect", "", _UNUSED, ""]
    for row in rows:
        if row.unused:
            unsafe = "; unsafe to ignore: Hermes does not start until it is acknowledged" if row.unused.unsafe else ""
            lines.append(f"- `{row.key}`: {row.unused.reason}{unsafe}")
    return "\n".join(lines) + "\n"


def _platforms() -> Iterator[str]:
    for name in registry.built_in():
        about = registry.descriptor(name)
        for one in about.fields:
            variable = f"`{one.env}`" if one.env else "–"
            yield f"| {about.title} | `{one.key}` | {variable} | {one.help}{' (needed)' if one.required else ''} |"


def _line(row: Setting) -> str:
    default = "–" if row.default is None or row.default == () else f"`{_written(row.default)}`"
    variable, effect = f"`{row.variable}`" if row.variable else "", "restart" if row.restart else ""
    return f"| `{row.key}` | {_kind(row.kind)} | {default} | {variable} | {effect} | {row.about} |"


def _kind(kind: Kind) -> str:
    """Its name, and the bounds of a number."""
    if not isinstance(kind, Number) or (kind.least, kind.most) == (0, MOST):
        return kind.name
    if kind.most >= MOST:
        return f"{kind.name}, at least {kind.least:,}"
    return f"{kind.name}, {kind.least:,} to {kind.most:,}"


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _providers() -> Iterator[str]:
    for row in provider_table.table().values():
        if row.keys or row.base_url_variable:
            keys = " or ".join(f"`{name}`" for name in row.keys) or "–"
            yield f"| {row.name} | {keys} | {f'`{row.base_url_variable}`' if row.base_url_variable else '–'} |"


if __name__ == "__main__":
    print(page(), end="")
