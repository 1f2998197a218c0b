"""Reading and changing a home's configuration."""

import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_config import config
from hermes_config.errors import ConfigError
from hermes_config.sections import BudgetSection, SessionsSection

pytestmark = pytest.mark.slow

Write = Callable[[str], Path]

# The configuration of a home that the reference left behind: most keys are not ours.
OLD_HOME = """\
# Sample home configuration (no credentials).
model:
  default: anthropic/claude-sonnet-4.6   # the usual one
  context_length: 200000
reset_triggers: ["/new", "/reset"]
quick_commands:
  up:
    type: exec
    command: uptime
streaming:
  enabled: false
  transport: "off"
sessions:
  auto_prune: false
  retention_days: 90     # three months
  min_interval_hours: 24

  # keep the file small
  vacuum_after_prune: true
platforms:
  telegram:
    home_channel:
      chat_id: "42"
gateway:
  max_concurrent_sessions: 4
"""


@pytest.fixture
def home(home: Path) -> Path:
    home.mkdir()
    return home


@pytest.fixture
def write(home: Path) -> Write:
    def put(text: str) -> Path:
        (home / "config.yaml").write_text(text, encoding="utf-8")
        return home / "config.yaml"

    return put


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


# Reading


def test_a_home_without_files_has_the_defaults(home: Path) -> None:
    loaded = config.load()
    assert loaded.home == home
    assert loaded.sessions == SessionsSection(False, 90, 24, True)
    assert loaded.state.synchronous == "full"
    assert loaded.database_url() is None
    assert list(home.iterdir()) == []


def test_an_old_home_loads_with_all_its_keys(write: Write) -> None:
    write(OLD_HOME)
    loaded = config.load()
    assert loaded.sessions.retention_days == 90
    assert loaded.tree["quick_commands"]["up"]["command"] == "uptime"
    assert loaded.tree["reset_triggers"] == ("/new", "/reset")


def test_what_was_loaded_cannot_be_changed(write: Write) -> None:
    write(OLD_HOME)
    loaded = config.load()
    with pytest.raises(TypeError):
        loaded.tree["platforms"]["telegram"]["enabled"] = True  # type: ignore[index]
    with pytest.raises(AttributeError):
        loaded.sessions.retention_days = 1  # type: ignore[misc]


def test_a_second_load_is_the_same_object_until_a_file_changes(write: Write, home: Path) -> None:
    write("sessions: {retention_days: 10}\n")
    first = config.load()
    assert config.load() is first
    write("sessions: {retention_days: 11}\n")
    assert config.load().sessions.retention_days == 11
    (home / ".env").write_text("NEW=1\n")
    assert config.load().environ("NEW") == "1"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("retention_days: '30'", 30),
        ("retention_days: 30.0", 30),
        ("retention_days:", 90),
        ("auto_prune: 'yes'", True),
        ("auto_prune: off", False),
    ],
)
def test_values_are_taken_as_people_write_them(write: Write, line: str, value: object) -> None:
    write(f"sessions:\n  {line}\n")
    assert getattr(config.load().sessions, line.partition(":")[0]) == value


@pytest.mark.parametrize("written", ["5", "'5'", "5.0", "$5"])
def test_a_spending_limit_is_taken_as_people_write_it(write: Write, written: str) -> None:
    write(f"budget:\n  day: {{usd: {written}}}\n  conversation:\n    tokens: 1_000\n  person_day:\n")
    limits = config.load().budget
    assert (limits.day.usd, limits.day.tokens) == (5.0, None)
    assert (limits.conversation.tokens, limits.person_day.usd) == (1_000, None)
    assert limits.limits_money


def test_without_a_word_about_it_nothing_is_limited(write: Write) -> None:
    write("budget:\n")
    assert config.load().budget == BudgetSection()


BAD = [
    ("a: 1\nsessions:\n  retention_days: soon\n", 3, "sessions.retention_days", "whole number"),
    ("sessions:\n  retention_days: true\n", 2, "sessions.retention_days", "whole number"),
    ("sessions:\n  retention_days: 0\n", 2, "sessions.retention_days", "at least 1"),
    ("sessions:\n\n\n  auto_prune: perhaps\n", 4, "sessions.auto_prune", "true or false"),
    ("sessions: 3\n", 1, "sessions", "section"),
    ("sessions:\n  retention_day: 3\n", 2, "sessions.retention_day", "Did you mean sessions.retention_days"),
    ("state:\n  synchronous: sometimes\n", 2, "state.synchronous", "full or normal"),
    ("state:\n  database_ur: x\n", 2, "state.database_ur", "Did you mean"),
    ("budget:\n  day:\n    usd: lots\n", 3, "budget.day.usd", "amount in dollars"),
    ("budget:\n  day: {usd: -1}\n", 2, "budget.day.usd", "at least 0"),
    ("budget:\n  day: {usd: .nan}\n", 2, "budget.day.usd", "amount in dollars"),
    ("budget:\n  day: {tokens: 1.5}\n", 2, "budget.day.tokens", "whole number"),
    ("budget:\n  day: {eur: 1}\n", 2, "budget.day.eur", "Known: tokens, usd"),
    ("budget:\n  day: 5\n", 2, "budget.day", "section with keys such as usd"),
    ("budget:\n  persons_day: {usd: 5}\n", 2, "budget.persons_day", "Did you mean budget.person_day"),
    ("budget: 5\n", 1, "budget", "section with keys such as day"),
    ("a: 1\nb: [1, 2\nc: 3\n", 3, "", "not valid YAML"),
    ("a: 1\n\tb: 2\n", 2, "", "not valid YAML"),
    ("a: 1\nb: !secret x\n", 2, "", "not valid YAML"),
    ("a: 1\nb: \x01\n", 2, "", "not valid YAML"),
    ("- a\n- b\n", 1, "", "top level"),
    ("when: 2026-99-99\n", 0, "", "not valid"),
    ("a: &x [*x]\n", 0, "", "contains itself"),
]


@pytest.mark.parametrize(("text", "line", "key", "reason"), BAD)
def test_a_mistake_is_told_with_file_line_key_and_reason(
    write: Write, text: str, line: int, key: str, reason: str
) -> None:
    file = write(text)
    with pytest.raises(ConfigError, match=reason) as caught:
        config.load()
    assert (caught.value.file, caught.value.line, caught.value.key) == (str(file), line, key)
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8_is_told_with_its_line(home: Path) -> None:
    (home / "config.yaml").write_bytes(b"a: 1\nb: \xff\xfe\n")
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        config.load()
    assert caught.value.line == 2


def test_a_password_in_a_url_is_not_shown(write: Write) -> None:
    write("state:\n  database_url: mysql://u:hunter2@h/x\n")
    with pytest.raises(ConfigError) as caught:
        config.load()
    assert "hunter2" not in str(caught.value)
    write("state:\n  database_url: postgresql://u:hunter2@h/x\n")
    assert config.load().database_url() == "postgresql://u:hunter2@h/x"
    assert "hunter2" not in repr(config.load())


def test_many_aliases_do_not_grow_into_a_flood(write: Write) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    write(bomb)
    assert len(config.load().tree["a39"]) == 2


def test_the_environment_wins_over_dotenv_and_both_over_the_file(
    write: Write, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("state:\n  database_url: sqlite:///from-file\n")
    assert config.load().database_url() == "sqlite:///from-file"
    (home / ".env").write_text("HERMES_DATABASE_URL=sqlite:///from-dotenv\n")
    assert config.load().database_url() == "sqlite:///from-dotenv"
    monkeypatch.setenv("HERMES_DATABASE_URL", "sqlite:///from-environment")
    assert config.load().database_url() == "sqlite:///from-environment"
    monkeypatch.setenv("HERMES_DATABASE_URL", "")  # as a compose file passes on what nobody set
    assert config.load().database_url() == "sqlite:///from-dotenv"


def test_a_running_process_keeps_the_last_good_configuration(write: Write) -> None:
    write("sessions: {retention_days: 10}\n")
    good, problem = config.load_or_last_good()
    assert problem is None
    write("sessions: {retention_days: [}\n")
    for _ in range(2):
        kept, problem = config.load_or_last_good()
        assert kept is good
        assert problem is not None
        assert problem.line == 1
    write("sessions: {retention_days: 12}\n")
    mended, problem = config.load_or_last_good()
    assert (mended.sessions.retention_days, problem) == (12, None)


def test_a_process_that_never_had_a_good_one_refuses(write: Write) -> None:
    write("sessions: 3\n")
    with pytest.raises(ConfigError):
        config.load_or_last_good()


def test_a_file_that_cannot_be_read_is_not_taken_for_an_absent_one(home: Path) -> None:
    (home / "config.yaml").symlink_to("config.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load()
    with pytest.raises(ConfigError):
        config.set_value("a", 1)


def test_a_folder_in_place_of_the_file_is_told(home: Path) -> None:
    (home / "config.yaml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load()


def test_yaml_is_not_imported_before_a_file_is_parsed(home: Path) -> None:
    code = "import sys; from hermes_config import config; config.load(); print('yaml' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


# Changing

EDITS = [
    ("sessions.retention_days", 30, ["  retention_days: 30     # three months"]),
    ("model.default", "openai/x", ["  default: openai/x   # the usual one"]),
    ("streaming.transport", "auto", ['  transport: "auto"']),
    ("reset_triggers", ["/new"], ["reset_triggers: [/new]"]),
    ("sessions.note", "a: b", ["  note: 'a: b'"]),
    ("platforms.telegram.enabled", True, ["    enabled: true"]),
    ("platforms.telegram.home_channel.chat_id", "43", ['      chat_id: "43"']),
    ("limits.title_chars", 80, ["limits:", "  title_chars: 80"]),
    ("a.b.c", "two\nlines", ["a:", "  b:", '    c: "two\\nlines"']),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("key", "value", "lines"), EDITS)
def test_setting_a_key_changes_its_line_and_no_other(
    write: Write, home: Path, key: str, value: object, lines: list[str], newline: str
) -> None:
    (home / "config.yaml").write_bytes(OLD_HOME.replace("\n", newline).encode())
    saved = config.set_value(key, value)
    after = saved.file.read_bytes().decode()
    removed, added = changed_lines(OLD_HOME, after)
    assert added == lines
    assert len(removed) <= 1
    assert after.count(newline) == after.count("\n")
    assert saved.backup is None
    found: object = config.load().tree
    for name in key.split("."):
        found = found[name]  # type: ignore[index]
    assert found == (tuple(value) if isinstance(value, list) else value)


def test_a_new_key_of_a_section_stands_with_its_section(write: Write) -> None:
    file = write(OLD_HOME)
    config.set_value("sessions.note", "x")
    lines = file.read_text().splitlines()
    assert lines[lines.index("  note: x") - 1] == "  vacuum_after_prune: true"


def test_a_section_without_content_is_filled(write: Write) -> None:
    file = write("sessions:\nlast: 1\n")
    config.set_value("sessions.retention_days", 5)
    assert file.read_text() == "sessions:\n  retention_days: 5\nlast: 1\n"


@pytest.mark.parametrize(
    ("text", "key", "value", "after"),
    [
        ("model: demo # mine\n", "model.vision", True, "model: {default: demo, vision: true} # mine\n"),
        ("model: demo\n", "model.default", "openai/x", "model: openai/x\n"),
        ("model: demo\n", "model.headers.x-a", "1", "model: {default: demo, headers: {x-a: '1'}}\n"),
        ("streaming: false\n", "streaming.edit_interval", 2, "streaming: {edit_interval: 2, enabled: false}\n"),
    ],
)
def test_a_bare_value_in_place_of_a_section_stays_when_a_key_is_set(
    write: Write, text: str, key: str, value: object, after: str
) -> None:
    file = write(text)
    assert config.set_value(key, value).backup is None
    assert file.read_text() == after


@pytest.mark.parametrize(
    "text", ["a: &x 1\nb: *x\n# comment\n", "a: {c: 2}\nb:\n  - 1\n# comment\n", "b: |\n  text\n# comment\n"]
)
def test_where_lines_cannot_be_edited_the_data_is_right_and_the_old_text_kept(write: Write, text: str) -> None:
    write(text)
    others = {name: value for name, value in config.load().tree.items() if name != "b"}
    saved = config.set_value("b", 7)
    assert saved.backup is not None
    assert saved.backup.read_text() == text
    assert dict(config.load().tree) == others | {"b": 7}
    again = config.set_value("b.c", {"d": [1]})
    assert saved.backup.read_text() == text
    assert again.backup != saved.backup


def test_a_save_creates_a_private_file_in_a_private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "new"))
    saved = config.set_value("sessions.retention_days", 5)
    assert stat.S_IMODE(saved.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(saved.file.parent.stat().st_mode) == 0o700
    assert saved.file.read_text() == "sessions:\n  retention_days: 5\n"


def test_several_keys_change_in_one_write(write: Write, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader, or a crash, in between must not find a new address beside the old key."""
    file = write("# mine\nmodel:\n  base_url: http://old/v1  # the old one\n  default: a\nother: 1\n")
    written: list[str] = []
    keep = config.write_atomic
    monkeypatch.setattr(config, "write_atomic", lambda file, text: (written.append(text), keep(file, text)))
    config.set_values({"model.base_url": None, "model.provider": "openai", "model.default": "b", "model.api_key": None})
    assert written == [file.read_text()]
    assert written[0] == "# mine\nmodel:\n  default: b\n  provider: openai\nother: 1\n"
    config.set_values({"model.default": "b"})
    assert len(written) == 1, "nothing changed"
    with pytest.raises(ConfigError, match="Nothing was saved"):
        config.set_values({"model.default": "c", "sessions.retention_days": "many"})
    assert file.read_text() == written[0]


def test_a_save_never_follows_a_failed_read(write: Write, home: Path) -> None:
    file = write("sessions: [\n")
    with pytest.raises(ConfigError):
        config.set_value("a", 1)
    assert file.read_text() == "sessions: [\n"
    (home / ".env").write_text("!!\n")
    write("a: 1\n")
    with pytest.raises(ConfigError, match=r"\.env"):
        config.set_value("a", 2)
    assert file.read_text() == "a: 1\n"


@pytest.mark.parametrize(("key", "value"), [("sessions.retention_days", "x"), ("limits.nonsense", 1), ("a..b", 1)])
def test_a_value_that_would_not_load_is_not_saved(write: Write, key: str, value: object) -> None:
    file = write(OLD_HOME)
    with pytest.raises(ConfigError):
        config.set_value(key, value)
    assert file.read_text() == OLD_HOME


def test_saving_leaves_secrets_alone(write: Write, home: Path) -> None:
    write(OLD_HOME)
    (home / ".env").write_text("TOKEN='hunter2'  # mine\n")
    before = (home / ".env").stat()
    config.set_value("sessions.retention_days", 30)
    after = (home / ".env").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert "hunter2" not in (home / "config.yaml").read_text()


def test_a_variable_is_added_to_env_below_what_stands_there(home: Path) -> None:
    file = home / ".env"
    file.write_text("# mine\nexport A='x y'   # kept")
    assert config.add_variable("TELEGRAM_BOT_TOKEN", "12:AA", home)
    assert file.read_text() == "# mine\nexport A='x y'   # kept\nTELEGRAM_BOT_TOKEN=12:AA\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert config.load(home).environ("TELEGRAM_BOT_TOKEN") == "12:AA"
    before = file.read_text()
    assert not config.add_variable("TELEGRAM_BOT_TOKEN", "13:BB", home), "what stands there is not changed"
    assert file.read_text() == before


def test_nothing_is_added_to_an_env_that_cannot_be_read(home: Path) -> None:
    (home / ".env").write_text("not a line\n")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        config.add_variable("A", "1", home)
    assert (home / ".env").read_text() == "not a line\n"
