"""Several keys of one provider: a refused one rests, the next one goes on, and no key is shown or sent elsewhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent import AIAgent
from hermes_agent.models import keys, providers
from hermes_cli.main import main
from hermes_config import config, redaction
from hermes_state import SessionDB
from hermes_testing.scripted.model import ScriptedModel, always, fail, say
from hermes_testing.scripted.server import ScriptedServer
from hermes_testing.scripted.steps import ScriptedRequest

ONE, TWO, THREE = (f"canary-key-{number}-abcdef" for number in (1, 2, 3))


def key_of(request: ScriptedRequest) -> str:
    return request.headers["authorization"].removeprefix("Bearer ")


def with_key(key: str) -> Any:
    return lambda request: key_of(request) == key


@pytest.fixture
def three_keys(home: Path) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / ".env").write_text(f"OWN_KEY={ONE}\nOWN_KEY_2={TWO}\nOWN_KEY_3='{THREE}'\nOWN_KEY_4={ONE}\n")
    return home


@pytest.fixture
def server(three_keys: Path) -> Iterator[ScriptedServer]:
    with ScriptedModel(api_key="").served() as served:
        entry = {**served.model.settings(served.origin), "key_env": "OWN_KEY"}
        del entry["api_key"]
        (three_keys / "config.yaml").write_text(json.dumps({"auto_title": False, "model": entry}))
        yield served


def asks(db: SessionDB, server: ScriptedServer, text: str = "hello") -> tuple[dict[str, Any], list[str]]:
    """The result of a turn in a new agent, and the keys it used, in order."""
    before = len(server.model.requests)
    result = asyncio.run(AIAgent(session_db=db, config=config.load()).arun_conversation(text))
    return result, [key_of(request) for request in server.model.requests[before:]]


def test_a_refused_key_rests_and_the_next_one_goes_on(
    db: SessionDB, server: ScriptedServer, three_keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = providers.primary(config.load())
    assert (endpoint.api_key, [key for key, _ in endpoint.more_keys]) == (ONE, [TWO, THREE])
    server.model.add(
        fail(429, headers={"retry-after": "900"}, when=with_key(ONE)), fail(402, when=with_key(TWO)),
        always(say("Here.", when=with_key(THREE))),
    )  # fmt: skip
    result, used = asks(db, server)
    assert (result["final_response"], used) == ("Here.", [ONE, TWO, THREE]), "without a pause, in one turn"
    assert asks(db, server)[1] == [THREE], "another agent does not try them again"
    rests = json.loads((three_keys / "key_rests.json").read_text())
    assert sorted(round(one["until"] - time.time(), -2) for one in rests.values()) == [900, 3_600]
    first, second, third = keys.described(endpoint)
    assert first.endswith(": the rate limit)") and second.endswith(": no credit)")
    assert third == "OWN_KEY_3 in .env"
    for command in (["doctor"], ["status"], ["status", "--json"]):
        main(command)
    shown = capsys.readouterr().out
    assert "OWN_KEY in .env (rests until" in shown and "OWN_KEY_3 in .env" in shown
    told = shown + (three_keys / "key_rests.json").read_text() + repr(endpoint)
    assert not any(key in told for key in (ONE, TWO, THREE))
    assert not any(key in redaction.current()(f"{ONE} {TWO} {THREE}") for key in (ONE, TWO, THREE))


def test_when_all_are_refused_the_error_is_the_one_that_may_pass(
    db: SessionDB, server: ScriptedServer, three_keys: Path
) -> None:
    limited = fail(429, headers={"retry-after": "3600"}, when=with_key(TWO))
    server.model.add(fail(401, when=with_key(ONE)), limited, fail(401, when=with_key(THREE)))
    result, used = asks(db, server)
    assert used == [ONE, TWO, THREE] and "slow down" in result["error"]
    (three_keys / "key_rests.json").write_text("[broken")
    server.model.add(say("Here."))
    assert asks(db, server)[1] == [ONE], "a damaged file costs nothing"


def test_when_all_rest_only_the_one_that_is_free_soonest_is_tried(db: SessionDB, server: ScriptedServer) -> None:
    waits = {ONE: "7200", TWO: "3600", THREE: "9000"}
    refusals = [fail(429, headers={"retry-after": wait}, when=with_key(key)) for key, wait in waits.items()]
    server.model.add(*refusals)
    assert asks(db, server)[1] == [ONE, TWO, THREE]
    server.model.add(fail(401, when=with_key(TWO)))
    result, used = asks(db, server)
    assert used == [TWO] and result["error"]
    server.model.add(say("Here.", when=with_key(TWO)))
    assert asks(db, server)[1] == [TWO]


def test_other_errors_do_not_move_to_another_key(db: SessionDB, server: ScriptedServer) -> None:
    server.model.add(fail(400))
    assert asks(db, server)[1] == [ONE]
    server.model.add(fail(500), say("Here."))
    assert asks(db, server)[1] == [ONE, ONE], "a fault of the server is no fault of the key"


def test_a_key_goes_to_its_own_provider_alone(three_keys: Path) -> None:
    (three_keys / ".env").write_text(f"OPENAI_API_KEY={ONE}\nOPENAI_API_KEY_2={TWO}\n")
    for base_url, known in (("https://api.openai.com/v1", 1), ("https://elsewhere.example/v1", 0)):
        entry = {"default": "gpt-5", "provider": "custom", "base_url": base_url}
        (three_keys / "config.yaml").write_text(json.dumps({"model": entry}))
        endpoint = providers.primary(config.load())
        assert (bool(endpoint.api_key), len(endpoint.more_keys)) == (bool(known), known)
