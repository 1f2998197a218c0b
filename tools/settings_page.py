"""The operators' page of all settings, made from the tables by `make docs`: `python -m tools.settings_page`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes_agent.models.provider_table import PROVIDERS
from hermes_config.settings import settings
from hermes_config.settings_table import AREAS, VARIABLES, Setting

_INTRODUCTION = """# All settings

*Made from `hermes_config/settings_table.py` by `make docs`; do not edit.* How files and variables work together is in
[configuration](configuration.md), every key below `limits:` in [limits](limits.md).

Keys are those of `config.yaml`; `hermes config set KEY VALUE` sets one. A variable stands in `.env` or the environment
and counts above the file. `<name>` is a platform, a model, a plug-in … of yours. A dash: there is no default. Keys of
*The gateway* and *Platforms* may also stand under `gateway:`."""
_SECRETS = """Keys of model providers are variables, of the names the providers use themselves."""
_KEPT = """Accepted because existing homes have them. They change nothing here; `hermes config check` names them."""


def page() -> str:
    lines = [_INTRODUCTION]
    for title, rows in AREAS.items():
        lines += ["", f"## {title}", "", "| key | kind | default | variable | |", "|---|---|---|---|---|"]
        lines += [_line(row) for row in rows if not row.kept]
    lines += ["", "## Variables without a key", "", "| variable | |", "|---|---|", *_variables()]
    lines += ["", "## Keys of providers", "", _SECRETS, ""]
    lines += ["| provider | key | address |", "|---|---|---|", *_providers()]
    lines += ["", "## Kept, without effect", "", _KEPT, ""]
    lines += [f"- `{row.key}`" for row in settings() if row.kept]
    return "\n".join(lines) + "\n"


def _line(row: Setting) -> str:
    default = "–" if row.default is None else f"`{_written(row.default)}`"
    return f"| `{row.key}` | {row.kind} | {default} | {f'`{row.variable}`' if row.variable else ''} | {row.about} |"


def _written(value: Any) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value)


def _variables() -> Iterator[str]:
    for name, about in VARIABLES.items():
        yield f"| `{name}` | {about} |"


def _providers() -> Iterator[str]:
    for row in PROVIDERS.values():
        if row.keys or row.base_url_variable:
            keys = " or ".join(f"`{name}`" for name in row.keys) or "–"
            yield f"| {row.name} | {keys} | {f'`{row.base_url_variable}`' if row.base_url_variable else '–'} |"


if __name__ == "__main__":
    print(page(), end="")
