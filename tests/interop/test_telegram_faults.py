"""What goes wrong on purpose: floods, cut connections, broken gateways, updates twice, shuffled or mad."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import telegram
from telegram.error import NetworkError, RetryAfter
from tests.support.processes import Worker

from hermes_testing.telegram import server
from hermes_testing.telegram.answers import BotApiError
from hermes_testing.telegram.client import RemoteTelegram
from hermes_testing.telegram.faults import MALFORMED, STRICT, USUAL, Fault, FloodControl, FloodRules
from hermes_testing.telegram.server import FakeTelegram
from hermes_testing.telegram.world import FakeChat


def ask(fake: FakeTelegram, method: str, **parameters: Any) -> Any:
    return httpx2.post(f"{fake.base_url}{fake.token}/{method}", json=parameters, trust_env=False).json()


def updates(fake: FakeTelegram, **parameters: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = ask(fake, "getUpdates", **parameters)["result"]
    return result


# -- floods --------------------------------------------------------------------------------------------------------


class _Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _spent(control: FloodControl, chat: FakeChat, times: int) -> int:
    """How many of so many messages went through."""
    through = 0
    for _ in range(times):
        try:
            control.spend(chat)
        except BotApiError as error:
            assert (error.code, error.description) == (429, f"Too Many Requests: retry after {error.retry_after}")
            continue
        through += 1
    return through


def test_a_chat_takes_a_burst_and_then_one_a_second() -> None:
    clock = _Seconds()
    control, chat = FloodControl(USUAL, clock), FakeChat(1, "private")
    assert _spent(control, chat, 20) == 5
    clock.now += 1.0
    assert _spent(control, chat, 20) == 1
    clock.now += 60
    assert _spent(control, chat, 20) == 5


def test_a_group_takes_twenty_a_minute() -> None:
    clock = _Seconds()
    control, chat = FloodControl(FloodRules(chat_per_second=0), clock), FakeChat(-1, "supergroup")
    assert _spent(control, chat, 40) == 20
    clock.now += 61
    assert _spent(control, chat, 40) == 20


def test_all_chats_together_take_thirty_a_second() -> None:
    clock = _Seconds()
    control = FloodControl(USUAL, clock)
    assert sum(_spent(control, FakeChat(number, "private"), 1) for number in range(1, 51)) == 30
    clock.now += 1.01
    assert sum(_spent(control, FakeChat(number, "private"), 1) for number in range(51, 71)) == 20


def test_asking_before_the_time_is_over_is_refused_and_noted() -> None:
    clock = _Seconds()
    control, chat = FloodControl(STRICT, clock), FakeChat(1, "private")
    assert _spent(control, chat, 2) == 1
    clock.now += 0.5
    assert (_spent(control, chat, 1), control.impatient) == (0, 1)
    clock.now += 0.6
    assert _spent(control, chat, 1) == 1


def test_a_bot_that_is_too_quick_is_told_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")  # without it the library warns of the type it will change to

    async def quick(fake: FakeTelegram, chat: int) -> None:
        async with telegram.Bot(fake.token, base_url=fake.base_url) as bot:
            sent = await bot.send_message(chat, "one")
            with pytest.raises(RetryAfter) as caught:
                await bot.edit_message_text("two", chat, sent.message_id)
            assert caught.value.retry_after == timedelta(seconds=1)
            await asyncio.sleep(1.05)
            await bot.edit_message_text("two", chat, sent.message_id)

    with FakeTelegram(flood=STRICT) as fake:
        ada = fake.person("ada")
        ada.say("hi")
        asyncio.run(quick(fake, ada.id))
        assert [call.code for call in fake.journal("editMessageText")] == [429, 200]
        fake.flood("off")
        for number in range(40):
            assert ask(fake, "sendMessage", chat_id=ada.id, text=str(number))["ok"] is True


def test_flood_control_is_on_unless_it_is_switched_off() -> None:
    token = "99:a-token-of-this-test"
    with (
        FakeTelegram(token=token) as here,
        _Process("--token", token) as process,
        RemoteTelegram(process.line(), token) as apart,
    ):
        for fake, address in ((here, here.address), (apart, apart.address)):
            ada = fake.person("ada")
            ada.say("hi")
            for number in range(8):
                body = {"chat_id": ada.id, "text": str(number)}
                httpx2.post(f"{address}/bot{token}/sendMessage", json=body, trust_env=False)
            assert {call.code for call in fake.journal("sendMessage")} == {200, 429}


# -- the way there and back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "arrived"), [("drop_before", 0), ("drop_after", 1)])
def test_a_cut_connection_says_nothing_about_the_effect(kind: Any, arrived: int) -> None:
    async def send(fake: FakeTelegram, chat: int) -> None:
        async with telegram.Bot(fake.token, base_url=fake.base_url) as bot:
            with pytest.raises(NetworkError):
                await bot.send_message(chat, "hello")
            assert (await bot.get_me()).username  # and the next request is served

    with FakeTelegram(faults=[Fault(kind, method="sendMessage", times=1)]) as fake:
        ada = fake.person("ada")
        ada.say("hi")
        asyncio.run(send(fake, ada.id))
        assert len(ada.replies()) == arrived
        (call,) = fake.journal("sendMessage")
        assert (call.done, call.answered, call.faults) == (bool(arrived), False, [kind])


def test_a_broken_gateway_a_delay_and_a_flood() -> None:
    rules = [
        Fault("error", method="sendMessage", status=502, times=1),
        Fault("flood", method="sendMessage", seconds=7, skip=1, times=1),
        Fault("delay", method="sendMessage", seconds=0.2, skip=2),
    ]
    with FakeTelegram(faults=rules) as fake:
        ada = fake.person("ada")
        ada.say("hi")
        url = f"{fake.base_url}{fake.token}/sendMessage"
        body = {"chat_id": ada.id, "text": "x"}
        answers = [httpx2.post(url, json=body, trust_env=False) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [502, 429, 200]
        assert "<html>" in answers[0].text
        assert answers[1].json()["parameters"] == {"retry_after": 7}
        assert answers[1].headers["retry-after"] == "7"
        calls = fake.journal("sendMessage")
        assert (len(ada.replies()), [call.done for call in calls]) == (1, [False, False, True])
        assert calls[2].seconds >= 0.2
        assert fake.facts()["fired"] == [["error", 1], ["flood", 1], ["delay", 1]]


def test_chances_are_seeded() -> None:
    def outcome(seed: int) -> list[int]:
        with FakeTelegram(faults=[Fault("error", chance=0.5, status=500)], seed=seed) as fake:
            url = f"{fake.base_url}{fake.token}/getMe"
            return [httpx2.get(url, trust_env=False).status_code for _ in range(20)]

    first = outcome(7)
    assert first == outcome(7) != outcome(8)
    assert {*first} == {200, 500}


# -- updates -------------------------------------------------------------------------------------------------------


def test_updates_twice_shuffled_and_once_more() -> None:
    with FakeTelegram() as fake:
        ada = fake.person("ada")
        ids = [ada.say(f"message {number}").update for number in range(8)]
        fake.faults(Fault("duplicate", times=1))
        assert [one["update_id"] for one in updates(fake)] == sorted([*ids, *ids])
        fake.faults(Fault("reorder", times=1), seed=3)
        shuffled = [one["update_id"] for one in updates(fake)]
        assert shuffled != ids
        assert sorted(shuffled) == ids
        fake.faults(Fault("redeliver", times=1))
        offset = int(ids[4] or 0) + 1
        assert [one["update_id"] for one in updates(fake, offset=offset)] == [*ids[2:5], *ids[5:]]
        assert [one["update_id"] for one in updates(fake, offset=offset)] == ids[5:]


def test_mad_updates_have_ids_and_can_be_passed() -> None:
    with FakeTelegram(faults=[Fault("malformed", times=len(MALFORMED))]) as fake:
        ada = fake.person("ada")
        offset, mad = 0, []
        for number in range(len(MALFORMED)):
            ada.say(f"message {number}")
            batch = updates(fake, offset=offset)
            assert any(
                one.get("message", {}) and one["message"] for one in batch if isinstance(one.get("message"), dict)
            )
            mad += [one for one in batch if {key: one[key] for key in one if key != "update_id"} in MALFORMED]
            offset = max(one["update_id"] for one in batch) + 1
        assert [{key: one[key] for key in one if key != "update_id"} for one in mad] == list(MALFORMED)
        assert updates(fake, offset=offset) == []
        given = fake.inject({"update_id": 5, "message": {"text": "\0" * 10}})
        assert updates(fake) == [{"update_id": given, "message": {"text": "\0" * 10}}]


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no such fault"):
        Fault.of({"kind": "earthquake"})
    with FakeTelegram() as fake, pytest.raises(ValueError, match="no such fault"):
        fake.call("faults", rules=[{"kind": "drop_after", "moment": 1}])


# -- in a process of its own ---------------------------------------------------------------------------------------


class _Process(Worker):
    """The fake as people start it."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(Path(server.__file__).with_name("__main__.py"), "--port", 0, *arguments)


def test_in_a_process_of_its_own_it_announces_itself(tmp_path: Path) -> None:
    announced = tmp_path / "phone.json"
    token = f"99:{random.Random(1).randbytes(8).hex()}"
    arguments = ("--token", token, "--people", "ada=4242,mallory", "--announce", announced)
    with _Process(*arguments) as process:
        address = process.line()
        assert announced.stat().st_mode & 0o777 == 0o600
        assert address in announced.read_text()
        with RemoteTelegram(address, token) as remote:
            ada = remote.person("ada")
            ada.say("hello")
            ada.document(b"kept", filename="kept.txt")
            seen = remote.watch("ada", version=0)
            assert (ada.id, len(seen["messages"])) == (4242, 2)
        process._process.terminate()
        process.rest()


def test_attached_it_ends_with_whoever_started_it() -> None:
    command = [sys.executable, "-m", "hermes_testing.telegram", "--attached"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert httpx2.get(f"{address}/", trust_env=False).status_code == 404
        process.stdin.close()
        assert process.wait(20) == 0


def test_the_command_explains_itself() -> None:
    def said(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hermes_testing.telegram", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert "example:" in said("--help").stdout
    result = said("--fault", '{"kind": "x"}')
    assert result.returncode == 1
    assert result.stderr.startswith("hermes_testing.telegram: no such fault")
