"""What set-up, doctor, status and `plugins list` say of platforms and executors of plug-ins, also of bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.hermes_cli.conftest import Run

from gateway.platforms import registry
from hermes_cli.main import main
from hermes_config import config
from hermes_testing.plugins import plugin_home

LINES = """
import time
from hermes_testing.memory_platform import PretendAdapter

async def probe(config, running):
    {probe}

def register(ctx):
    ctx.register_platform(
        "lines", title="Lines", adapter=PretendAdapter, probe=probe,
        fields=[{{"key": "extra.port", "env": "LINES_PORT", "help": "the port", "required": True}}], {more}
    )
"""
Bring = Callable[..., None]


@pytest.fixture
def bring(home: Path) -> Iterator[Bring]:
    """Install and load a plug-in with the platform `lines`."""

    def add(probe: str = "return 'all is well'", more: str = "") -> None:
        plugged.add("lines", LINES.format(probe=probe, more=more))
        plugged.load("lines")
        config.set_value("model", "demo")

    with plugin_home(home) as plugged:
        yield add


def test_a_provider_with_a_wrong_field_is_said(run: Run, home: Path) -> None:
    with plugin_home(home) as plugged:
        plugged.add(
            "acme",
            'def register(ctx):\n    ctx.register_provider("acme", base_url="https://acme.example", guess="a-")\n',
        )
        plugged.load("acme")
        config.set_value("model", {"provider": "acme", "default": "acme-large"})
        said = "its provider acme is left out, because a field is wrong: "
        assert said in run("plugins", "list").out
        asked = run("model")
        assert asked.code == 1 and "the provider acme is left out, because a field is wrong: " in asked.err
        assert "'guess'" in asked.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('means="lookups",', "means is 'lookups', not one of key, edit, lookup, none"),
        ('colour="blue",', "names unknown fields: colour"),
    ],
)
def test_a_platform_that_is_not_described_well_is_said(
    run: Run, bring: Bring, capsys: pytest.CaptureFixture[str], more: str, said: str
) -> None:
    bring(more=more)
    config.set_value("platforms.lines", {"enabled": True, "extra": {"port": 7}})
    assert said in run("plugins", "list").out
    assert main(["gateway", "status"]) == 1
    assert said in capsys.readouterr().out
    assert run("gateway", "setup").code == 0, "the other platforms are listed"


def test_a_required_field_that_is_missing_is_named_with_its_key(
    run: Run, bring: Bring, capsys: pytest.CaptureFixture[str]
) -> None:
    bring()
    config.set_value("platforms.lines.enabled", True)
    said = "platforms.lines.extra.port (or the variable LINES_PORT) is not set"
    assert main(["gateway", "status"]) == 1
    assert said in capsys.readouterr().out
    refused = run("gateway", "setup", "lines")
    assert said in refused.err and "hermes config set platforms.lines.extra.port" in refused.err


def test_config_check_names_a_misspelt_field_and_a_variable_that_counts_above_the_file(
    run: Run, bring: Bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring()
    config.set_value("platforms.lines.extra", {"port": 7, "prot": 8})
    monkeypatch.setenv("LINES_PORT", "9")
    about = {one["name"]: (one["use"], one["about"]) for one in run("config", "check", "--json").data["entries"]}
    assert about["platforms.lines.extra.prot"] == ("harmless", "it is not a setting of lines, which has extra.port")
    assert about["platforms.lines.extra.port"] == (
        "harmless",
        "the variable LINES_PORT is set, and counts above it",
    )
    monkeypatch.delenv("LINES_PORT")
    about = {one["name"]: (one["use"], one["about"]) for one in run("config", "check", "--json").data["entries"]}
    assert about["platforms.lines.extra.port"] == ("used", "")


def test_set_up_switches_it_on(run: Run, bring: Bring, home: Path) -> None:
    bring()
    config.set_value("platforms.lines.extra.port", 7)
    shown = run("gateway", "setup", "lines", "--owner", "ada")
    assert shown.code == 0 and "all is well" in shown.out
    assert "enabled: true\n" in (home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        ("raise ConnectionRefusedError('nobody listens')", "nobody listens"),
        ("raise SystemExit(3)", "SystemExit"),
        ("time.sleep(60)", "did not end within 0.2 s"),
    ],
)
def test_whatever_a_probe_does_is_one_line(
    run: Run, bring: Bring, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], probe: str, said: str
) -> None:
    bring(probe)
    monkeypatch.setattr(registry, "PROBE_SECONDS", 0.2 if "sleep" in probe else 15.0)
    config.set_value("platforms.lines.extra.port", 7)
    refused = run("gateway", "setup", "lines", "--owner", "ada")
    assert refused.code == 1 and said in refused.err and "Traceback" not in refused.err
    code, shown = main(["doctor", "--online", "--json"]), json.loads(capsys.readouterr().out)
    (seen,) = [one for one in shown["checks"] if one["check"] == "platform lines"]
    assert code == 1 and seen["mark"] == "problem" and said in seen["says"]
    assert "executor" in {one["check"] for one in shown["checks"]}, "the other checks are there, too"


def test_an_executor_is_named_with_the_command_that_finds_it(
    run: Run, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_home(home) as plugged:
        plugged.add("jail", "def register(ctx):\n    ctx.register_executor('cell', lambda config: None)\n")
        plugged.load("jail")
        config.set_value("model", "demo")
        listed = run("plugins", "list").out
        assert "jail: brings the executor cell; plugin:cell as the setting executor uses it" in listed
        config.set_value("executor", "plugin:nowhere")
        assert main(["doctor", "--json"]) == 1
        shown = json.loads(capsys.readouterr().out)["checks"]
        (seen,) = [one for one in shown if "plugin:nowhere" in one["says"]]
        assert seen["advice"].startswith("hermes plugins list")
