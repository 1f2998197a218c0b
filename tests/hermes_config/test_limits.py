"""The table of limits, and its page in the operators' guide."""

from pathlib import Path

import pytest
from tools import limits_page

from hermes_config.errors import ConfigError
from hermes_config.limits import DEFAULTS, limits
from hermes_config.schema import Whole
from hermes_config.sections import table

ROWS = [row for row in table().rows.values() if row.key.startswith("limits.")]
PAGE = Path(__file__).parents[2] / "docs" / "operators" / "limits.md"


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == limits_page.page(), "run `make docs`"


def test_every_row_has_a_rule_a_unit_and_a_sound_default() -> None:
    for row in ROWS:
        assert row.about
        assert row.kind.name
        assert row.area
        assert isinstance(row.kind, Whole)
        assert row.default >= row.kind.least >= 0


def test_a_home_may_change_a_limit_and_keeps_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("limits:\n  title_chars: 80\n")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert limits().title_chars == 80
    assert limits().query_chars == DEFAULTS.query_chars


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("title_chars: -1", "at least 1"),
        ("title_chars: many", "whole number"),
        ("title_char: 80", "Did you mean limits.title_chars"),
        ("zzz: 80", "The nearest: "),
        ("config_bytes: 10", "not a known key"),
    ],
)
def test_a_bad_limit_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, reason: str
) -> None:
    (tmp_path / "config.yaml").write_text(f"model: x\nlimits:\n  {line}\n")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=reason) as caught:
        limits()
    assert caught.value.line == 3
    assert caught.value.key == f"limits.{line.partition(':')[0]}"
