"""`hermes cron`: what would fail later is said when a job is made, and every answer names the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import transact

from hermes_agent import jobs
from hermes_state.session_db import SessionDB

pytestmark = pytest.mark.usefixtures("named_store")
DAILY = ("cron", "add", "every day at 8", "The news.")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--tools", "terminal,nonsense"), "there is no toolset nonsense; there are "),
        (("--skill", "nonsense"), "there is no skill 'nonsense'. hermes skills list shows"),
        (("--model", "nonsense", "--provider", "demo"), "demo has no model nonsense."),
        (("--provider", "demo"), "--provider needs --model."),
        (("--model", "x", "--provider", "nowhere"), "there is no provider called 'nowhere'. Known: "),
        (("--text", "tea", "--to", "telegram:42"), "a reminder sends its text and does nothing else."),
        (("--budget", "0"), "--budget: must be dollars, more than 0, such as 0.50, not '0'."),
        (("--budget", "cheap"), "--budget: must be dollars, more than 0, such as 0.50, not 'cheap'."),
        (("--to", "nowhere:1"), "no chat of yours with Hermes is 'nowhere:1'."),
    ],
)
def test_what_could_never_work_is_refused(
    run: Callable[..., Any], db: SessionDB, given: tuple[str, ...], said: str
) -> None:
    done = run(*DAILY, *given)
    assert done.code != 0 and said in done.err
    assert not db.jobs.list()


def test_what_may_not_work_is_said(run: Callable[..., Any], db: SessionDB) -> None:
    done = run(*DAILY, "--to", "telegram:42")
    assert "Nobody has written to Hermes in telegram:42 yet" in done.err
    assert "No gateway is running" in done.err
    assert ": The news., every day at 8 (" in done.out and done.out.count(", next ") == 1
    once = run("cron", "add", "2030-01-31T09:00", "--text", "tea", "--to", "telegram:42").out
    assert once.count("31 Jan") == 1 and "It is sent to telegram:42." in once


def test_jobs_of_one_name_are_listed(run: Callable[..., Any], db: SessionDB) -> None:
    for when in ("every day at 8", "every day at 9"):
        run("cron", "add", when, "Tea.", "--name", "tea")
    said = run("cron", "show", "tea").err
    assert "2 jobs fit 'tea'. Give the id: " in said
    for job in db.jobs.list():
        assert f"{job.id[:8]} ({job.schedule})" in said


def test_the_page_after_the_last(run: Callable[..., Any], db: SessionDB) -> None:
    assert run("cron", "list").out.startswith("There are no jobs. hermes cron add")
    assert run("cron", "list", "--offset", "99").out == "There are no more jobs.\n"
    assert run("cron", "ledger").out == "No job has run yet.\n"
    assert run("cron", "ledger", "--before", "1").out == "There are no older runs.\n"


def test_the_ledger_is_in_the_order_of_time_and_says_why(
    run: Callable[..., Any], db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    run("cron", "add", "every day at 8", "--text", "Tea", "--to", "telegram:42")
    (job,) = db.jobs.list()
    for instant in (2_000.0, 9_000.0, 5_000.0):
        db.jobs.run_extra(job, [jobs.row_of(job, instant, late_after=1e10)])
    for item in transact(db.outbox.claim_due_in, sender="somebody"):
        transact(db.outbox.close_in, item, "failed", error="the bot was blocked")
    lines = run("cron", "ledger").out.splitlines()[1:]
    assert "failed" in lines[2] and "the bot was blocked" in lines[2]
    assert [line.split()[3] for line in lines] == ["02:30", "01:23", "00:33"]


def test_a_second_import_says_that_nothing_is_new(run: Callable[..., Any], db: SessionDB, home: Path) -> None:
    file = home / "cron" / "jobs.json"
    missing = run("cron", "import", "--yes").err
    assert missing.count(str(file)) == 1 and "hermes cron import FILE" in missing
    file.parent.mkdir(parents=True)
    row = {"id": "0123456789ab", "name": "Old", "prompt": "x", "schedule": {"kind": "cron", "expr": "0 8 * * *"}}
    file.write_text(json.dumps({"jobs": [row]}))
    assert run("cron", "import", "--yes").out == "Taken over: Old.\n"
    assert run("cron", "import", "--yes").out.startswith("Nothing new: ")


def test_the_runs_of_a_removed_job_are_found_by_its_id(run: Callable[..., Any]) -> None:
    job = run("cron", "add", "every day at 8", "Look.", "--json").data["id"]
    run("cron", "run", job)
    assert f"; hermes cron ledger {job} shows its runs" in run("cron", "remove", job, "--yes").out
    (row,) = run("cron", "ledger", job, "--json").data["runs"]
    assert (row["job_id"], row["outcome"], row["reason"]) == (job, "silent", "the job was removed before it ran")
    assert "no job 'ffffff'" in run("cron", "ledger", "ffffff").err
