"""Logs without secrets, whoever listens."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from hermes_config import logs

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
