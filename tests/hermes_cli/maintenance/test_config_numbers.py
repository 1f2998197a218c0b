"""`hermes config set` and numbers: one that cannot be is refused in one line, whichever room reads the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

from hermes_agent.compression.policy import window_for
from hermes_agent.models.demo import model as demo
from hermes_config import config
from hermes_config.schema import Money, Number
from hermes_config.sections import table

ROWS = [row for row in table().rows.values() if isinstance(row.kind, Number | Money)]
NUMBERS = [
    row.key.replace("<name>", "some") for row in ROWS if not row.key.startswith(("limits.", "reset_by_platform"))
]


@pytest.mark.parametrize("key", [*NUMBERS, "gateway.drain_seconds", "limits.terminal_seconds"])
def test_a_word_is_no_number(run: Run, home: Path, key: str) -> None:
    for wrong in ("twelve", "true", "[1]"):
        refused = run("config", "set", key, wrong)
        assert refused.code == 1 and refused.err.startswith(f"hermes: {key}: must be "), refused.err
        assert str(home / "config.yaml") in refused.err and "Nothing was saved." in refused.err
        assert refused.err.count("\n") == 1
    assert not (home / "config.yaml").exists()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("agent.max_turns", "0", "must be a whole number of at least 1, not 0"),
        ("agent.max_turns", "1.5", "must be a whole number of at least 1, not 1.5"),
        ("model.context_length", "10_000_000_000", "must be a whole number from 0 to 999,999,999, not 10000000000"),
        ("compression.threshold", "50", "must be a number from 0.05 to 0.95, not 50"),
        ("compression.threshold", ".nan", "must be a number from 0.05 to 0.95, not nan"),
        ("approvals.timeout", "100000", "must be a number from 0.001 to 86,400, not 100000"),
        ("gateway.max_live_sessions", "many", "must be a whole number of at least 0, not 'many'"),
        ("display.platforms.telegram.tool_preview_length", "501", "must be a whole number from 1 to 500, not 501"),
    ],
)
def test_a_number_out_of_range_is_refused(run: Run, home: Path, key: str, value: str, why: str) -> None:
    refused = run("config", "set", key, value)
    assert refused.code == 1 and f"{key}: {why} (" in refused.err
    assert not (home / "config.yaml").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.context_length", "auto"), ("model.context_length", "200,000"), ("model.max_tokens", "8_192"),
        ("demo.tokens_per_second", "0"), ("terminal.timeout", "0.5"), ("agent.max_turns", "null"),
        ("models.mine.price.input", "0.25"), ("compression.target_ratio", "0.5"), ("max_live_sessions", "0"),
        ("shop.tokens", "many"),
    ],
)  # fmt: skip
def test_what_is_understood_is_taken(run: Run, key: str, value: str) -> None:
    assert run("config", "set", key, value).code == 0


@pytest.mark.parametrize("end", [0, 1])
def test_the_bounds_are_those_of_the_packages(home: Path, end: int) -> None:
    bounds = {row.key: (row.kind.least, row.kind.most)[end] for row in ROWS if isinstance(row.kind, Number)}
    for key, bound in bounds.items():
        if key.startswith(("compression.", "approvals.")):
            config.set_value(key, bound)
    loaded = config.load()
    window = window_for(demo.endpoint(), loaded.compression)
    used = window.settings
    found = (used.threshold, used.target_ratio, used.protect_first_n, used.protect_last_n)
    names = ("threshold", "target_ratio", "protect_first_n", "protect_last_n")
    assert found == tuple(bounds[f"compression.{name}"] for name in names)
    assert loaded.approvals.timeout == bounds["approvals.timeout"] and not loaded.problems


def test_a_file_edited_by_hand_is_checked_like_what_is_set(run: Run, home: Path) -> None:
    home.mkdir(exist_ok=True)
    written = "agent: {max_turns: many}\ncompression: {threshold: 50, enabled: perhaps}\nterminal: {timeout: 90}\n"
    (home / "config.yaml").write_text(f"{written}approvals: {{timeout: 0}}\nmodel: {{context_length: '200,000'}}\n")
    checked = run("config", "check")
    assert checked.code == 0 and "read, see the notes" in checked.out
    notes = [line.removeprefix("note").strip() for line in checked.out.splitlines() if line.startswith("note")]
    assert notes == [
        "agent.max_turns must be a whole number of at least 1, not 'many'",
        "approvals.timeout must be a number from 0.001 to 86,400, not 0",
        "compression.enabled must be true or false, not 'perhaps'",
        "compression.threshold must be a number from 0.05 to 0.95, not 50",
    ]
