"""`hermes api key`: the one place that shows the key."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_cli.doctors import doctor
from tests.support.stores import transact

from gateway.api import auth
from hermes_cli.framework.store import open_store
from hermes_state.ids import LOCAL_OWNER

pytestmark = pytest.mark.slow


def test_a_key_is_made_once_and_printed_alone(run: Callable[..., Any], home: Path) -> None:
    made = run("api", "key")
    key = made.out.strip()
    assert len(key) >= 16 and made.out == f"{key}\n" and "gateway restart" in made.err
    assert (home / ".env").read_text(encoding="utf-8") == f"API_SERVER_KEY={key}\n"
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    again = run("api", "key", "--json").data
    assert again["key"] == key and again["new"] is False and again["base_url"] == "http://127.0.0.1:8642/v1"


def test_another_key_takes_its_place_and_other_lines_stay(run: Callable[..., Any], home: Path) -> None:
    home.mkdir(mode=0o700)
    before = "# mine\nTELEGRAM_BOT_TOKEN='1:a b'\nAPI_SERVER_KEY=an-old-key-of-my-own\n\nexport LAST=1\n"
    (home / ".env").write_text(before, encoding="utf-8")
    assert run("api", "key").out == "an-old-key-of-my-own\n"
    new = run("api", "key", "--rotate").out.strip()
    after = (home / ".env").read_text(encoding="utf-8")
    assert new != "an-old-key-of-my-own" and run("api", "key").out.strip() == new
    assert after == before.replace("API_SERVER_KEY=an-old-key-of-my-own\n", "") + f"API_SERVER_KEY={new}\n"


def test_a_key_that_is_too_short_is_refused_and_not_shown(run: Callable[..., Any], home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / ".env").write_text("API_SERVER_KEY=hunter2\n", encoding="utf-8")
    refused = run("api", "key")
    assert refused.code != 0 and "fewer than 16 characters" in refused.err and "hunter2" not in refused.err


def test_a_key_of_the_environment_is_not_changed_here(
    run: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_SERVER_KEY", "from-the-environment-0123")
    assert run("api", "key").out == "from-the-environment-0123\n"
    refused = run("api", "key", "--rotate")
    assert refused.code == 2 and "environment" in refused.err and not (home / ".env").exists()


def test_an_owner_key_is_another_key_and_made_only_when_somebody_asks(run: Callable[..., Any], home: Path) -> None:
    client = run("api", "key").out.strip()
    assert "API_SERVER_OWNER_KEY" not in (home / ".env").read_text(encoding="utf-8")
    made = run("api", "key", "--role", "owner")
    owner = made.out.strip()
    assert owner != client and "your terminal, files and approvals" in made.err
    assert "A running gateway accepts it" in made.err, "there is a key already, so the API is on"
    assert (home / ".env").read_text(encoding="utf-8") == f"API_SERVER_KEY={client}\nAPI_SERVER_OWNER_KEY={owner}\n"
    assert run("api", "key", "--role", "owner", "--json").data["role"] == "owner"
    new = run("api", "key", "--role", "owner", "--rotate").out.strip()
    assert new not in (owner, client) and run("api", "key").out.strip() == client, "the other one stays"


def test_doctor_tells_those_whose_key_changes(run: Callable[..., Any], healthy: Path) -> None:
    """An older home: the key was linked to the owner when its gateway ran."""
    key = run("api", "key").out.strip()
    with open_store() as db:
        db.people.owner()
        transact(db.people.link_in, LOCAL_OWNER, ("api_server", "", auth.key_id(key)), "API key")
    seen = _api()
    assert seen["mark"] == "warning" and "makes it a client key" in seen["says"]
    assert seen["fix"] == "hermes api key --role owner" and key not in str(seen)
    run(*seen["fix"].split()[1:])
    seen = _api()
    assert seen["mark"] == "ok" and "API_SERVER_OWNER_KEY is the owner's" in seen["says"]
    assert "no terminal, no files, no approvals" in seen["says"]
    (healthy / ".env").write_text(f"API_SERVER_KEY={key}\nAPI_SERVER_OWNER_KEY={key}\n", encoding="utf-8")
    seen = _api()
    assert seen["mark"] == "problem" and "is the same as API_SERVER_KEY" in seen["says"]
    assert run(*seen["fix"].split()[1:]).code == 0 and "client key" in _api()["says"]


def _api() -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in doctor()["checks"] if one["check"] == "api")
    return found
