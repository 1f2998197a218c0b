"""What goes wrong beside an answer is written to a private, bounded file and not onto the screen."""

from __future__ import annotations

import io
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_config import logs
from hermes_config.limits import DEFAULTS


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    root, before = logging.getLogger(), logging.getLogRecordFactory()
    handlers = list(root.handlers)
    logs.install()
    logs.install()
    yield
    root.handlers[:] = handlers
    logging.setLogRecordFactory(before)


def test_a_line_says_when_what_and_why_and_covers_secrets(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-canary-0123456789abcdef")
    try:
        raise ValueError("sk-canary-0123456789abcdef")
    except ValueError:
        logging.getLogger("hermes.agent").exception("a turn failed", extra={"action": "turn_failed"})
    logging.getLogger("hermes.agent").info("nothing to see")
    file = home / "logs" / "agent.log"
    said = file.read_text()
    assert "ERROR hermes.agent · turn_failed · a turn failed\n  Traceback" in said
    assert said.count("a turn failed") == 1
    assert "canary" not in said
    assert "nothing to see" not in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert capfd.readouterr() == ("", "")


def test_a_full_file_is_put_aside_and_only_one_is_kept(home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    file = home / "logs" / "agent.log"
    for size in (DEFAULTS.log_bytes + 1, DEFAULTS.log_bytes + 2):
        file.write_bytes(b"x" * size)
        logging.getLogger("hermes.agent").warning("one more")
    assert sorted(path.name for path in file.parent.iterdir()) == ["agent.log", "agent.log.1"]
    assert (home / "logs" / "agent.log.1").stat().st_size == DEFAULTS.log_bytes + 2
    assert file.read_text().count("\n") == 1


def test_a_disk_that_cannot_be_written_is_no_trouble_for_the_person(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "logs").write_text("in the way")
    logging.getLogger("hermes.agent").warning("one more")
    assert capfd.readouterr() == ("", "")


def test_nobodys_text_can_look_like_a_record(home: Path) -> None:
    forged = "a\n2026-01-01T00:00:00Z INFO hermes.gateway · all is well\r\u2028\x1b[2J\u202e"
    logging.getLogger("hermes.agent").error("bad: %s", forged, extra={"action": "x\ny"})
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("hermes.agent").exception("a defect")
    lines = (home / "logs" / "agent.log").read_text().split("\n")[:-1]
    records = [line for line in lines if not line.startswith("  ")]
    assert len(records) == 2 and all(" ERROR hermes.agent · " in line for line in records)
    assert all(line.isprintable() for line in lines) and "all is well" in records[0]


# -- records without secrets, whoever listens -------------------------------------------------------------

KEY = "xoxb-canary-998877665544"


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """Somebody else's logger and handler, at debug level."""
    logs.redact_records()
    logs.redact_records()
    logger, written = logging.getLogger("somebody.else"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield logger, written
    logger.removeHandler(handler)


def test_message_arguments_and_traceback_are_covered(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.debug("sent %s", [KEY])
    logger.info(f"with {KEY} at 100%")
    try:
        raise ValueError(KEY)
    except ValueError:
        logger.exception("failed")
    said = written.getvalue()
    assert KEY not in said
    assert "DEBUG sent ['[secret]']\nINFO with [secret] at 100%\nERROR failed\nTraceback" in said
    assert "ValueError: [secret]" in said


def test_a_line_that_cannot_be_formatted_shows_no_argument(
    log: tuple[logging.Logger, io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    logger, written = log
    logger.info("%d messages", KEY)
    assert written.getvalue() == "INFO a log line could not be made (TypeError)\n"
    assert capsys.readouterr().err == ""


def test_ordinary_records_are_left_alone(
    log: tuple[logging.Logger, io.StringIO], caplog: pytest.LogCaptureFixture
) -> None:
    logger, _ = log
    logger.info("%s of %d", "one", 2, extra={"action": "counted"})
    (record,) = caplog.records
    assert (record.msg, record.args, record.__dict__["action"]) == ("%s of %d", ("one", 2), "counted")
