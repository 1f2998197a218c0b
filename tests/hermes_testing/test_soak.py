"""`make soak` tells how far it is while it runs, also where nobody sits at a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench import soak

pytestmark = pytest.mark.slow


def test_a_line_now_and_then_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(soak, "_LINE_EVERY", 0.5)
    monkeypatch.setattr("sys.argv", ["soak", "--minutes", "0.03", "--chats", "2", "--rate", "5"])
    soak.main()  # whether so short a run held does not matter here
    lines = capsys.readouterr().out.splitlines()
    so_far = [line for line in lines if re.match(r"0 of 0 min: \d+ messages, rss MB \d+\.\d, wal MB ", line)]
    assert 1 <= len(so_far) <= 4, "one when it is time, and no more"
    assert re.match(r"\d+ messages, \d+ samples over ", lines[len(so_far)]), "and then the report"
