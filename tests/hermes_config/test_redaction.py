"""Covering secrets: what a home keeps secret and well-known keys go, everything else stays as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_config import redaction
from hermes_config.redaction import COVER, Redactor, redacted

pytestmark = pytest.mark.slow

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3\nxfn/ygWyF8PbnGy0\n-----END RSA PRIVATE KEY-----"
KEYS = [
    "sk-proj-4f1d2c3b4a59687f0e1d",
    "sk-ant-api03-abcDEF123456-xyz_AA",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghij_KLMNOPQRSTUVWXYZ",
    "xoxb-998877665544-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
    "glpat-abcDEF_1234567890xyz",
    "123456789:AAF0123456789abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
    PEM,
]
# Whatever may stand beside a key without being part of it.
AROUND = st.text(st.characters(exclude_characters="[]-_=/.:@+~", exclude_categories=["L", "N", "Cs"]), max_size=30)


@pytest.mark.parametrize("key", KEYS)
@given(before=AROUND, after=AROUND)
def test_a_well_known_key_goes_and_what_stands_around_it_stays(key: str, before: str, after: str) -> None:
    assert Redactor()(f"{before}{key}{after}") == f"{before}{COVER}{after}"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_key_in_json_goes_and_the_json_stays_json(key: str, times: int) -> None:
    value: str = f"first line\n{key}\nlast"
    for _ in range(times):
        value = json.dumps({"command": value, "next": "-----BEGIN"})
    covered = Redactor()(value)
    assert key.splitlines()[-1][5:] not in covered
    for _ in range(times):
        covered = json.loads(covered)["command"]
    assert covered == f"first line\n{COVER}\nlast"


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("Authorization: Bearer abc.def-ghi1jklmnop==, next", "Authorization: Bearer [secret], next"),
        ("postgresql://me:hunter2@host/db", "postgresql://me:[secret]@host/db"),
        ("MY_API_KEY='a1b2c3d4e5f6g7'", "MY_API_KEY='[secret]'"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfi", "AWS_SECRET_ACCESS_KEY=[secret]"),
        ("\x1b[01;31m\x1b[Ksk-4f1d2c3b4a59687f0e1d\x1b[m", "\x1b[01;31m\x1b[K[secret]\x1b[m"),
        (PEM[:60] + "\ncut here", "[secret]\ncut here"),
    ],
)
def test_only_the_secret_part_of_it_goes(text: str, covered: str) -> None:
    assert Redactor()(text) == covered
    assert Redactor()(covered) == covered


@pytest.mark.parametrize(
    "text",
    [
        "a task-force for disk-usage-monitoring-2024, risk-adjusted-returns-2023",
        "sk-learn is short for scikit-learn; sk-something-without-any-digits-in-it",
        "git clone ssh://git@github.com/a/b http://127.0.0.1:8080/a@b https://example.com?mail=a@b.c",
        "token = request.headers.get('token'); API_KEY=os.environ['API_KEY_1']; max_tokens: 128000",
        "Bearer authentication-schemes-without-numbers",
        "-----BEGIN CERTIFICATE-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3\n-----END CERTIFICATE-----",
        "ghost_writer_of_the_year_2024 xoxo- AKIA AIza glpat-",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor()(text) == text


@given(st.text(), st.frozensets(st.text(min_size=8, max_size=20), max_size=3))
def test_a_text_without_secrets_is_unchanged(text: str, values: frozenset[str]) -> None:
    assume(not any(form in text for form in redaction._forms(values)))
    assume(not any(shape.marker in text for shape in redaction._SHAPES))
    cover = Redactor(values)
    assert cover(text) == text
    assert cover.places == 0


@given(
    st.lists(st.one_of(st.text(max_size=12), st.sampled_from([0, 1])), max_size=8),
    st.tuples(*[st.text("abcdefghXYZ0189!\"\\'\n/é ", min_size=8, max_size=14)] * 2),
)
def test_a_known_value_is_nowhere_left_however_it_is_written(parts: list[str | int], values: tuple[str, str]) -> None:
    text = "".join(part if isinstance(part, str) else values[part] for part in parts)
    for written in (text, json.dumps(text), repr(text), json.dumps(json.dumps(text))):
        covered = Redactor(values)(written)
        for value in values:
            assert value not in covered.replace(COVER, "")


@given(
    st.binary(max_size=7), st.text("abcXYZ019!\"\\'/+é ", min_size=8, max_size=40), st.binary(max_size=7), st.booleans()
)
def test_a_known_value_is_covered_in_base64_and_in_an_address(
    before: bytes, value: str, after: bytes, in_url: bool
) -> None:
    written = (urlsafe_b64encode if in_url else b64encode)(before + value.encode() + after).decode()
    covered = Redactor([value])(written)
    whole = (len(value.encode()) * 8 - 4) // 6  # characters that hold nothing else
    assert COVER in covered and len(covered.replace(COVER, "")) <= len(written) - whole
    for way in (quote, quote_plus):
        for address in (way(value), way(value, safe=""), re.sub("%..", lambda code: code[0].lower(), way(value))):
            assert Redactor([value])(f"https://example.org/?q={address}&x=1") == f"https://example.org/?q={COVER}&x=1"


def test_places_are_counted() -> None:
    cover = Redactor(["correct-horse"])
    cover("correct-horse, correct-horse and xoxb-998877665544-abcdef")
    cover("nothing")
    assert cover.places == 3
    assert "correct" not in repr(cover)


def test_the_longer_of_two_values_goes_whole() -> None:
    assert Redactor(["password-one", "password-one-and-two"])("password-one-and-two") == COVER


def test_what_a_home_keeps_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(
        "model:\n  api_key: key-in-the-config\n  default: claude-sonnet-4-20250514\n  max_tokens: '12800000'\n"
        "  headers: {Authorization: Bearer config-header-value}\n"
        "platforms:\n  - {botToken: token-in-a-list, name: my-own-platform}\n"
        "voice: {record_key: ctrl+space}\nbackup: {api_key_env: BACKUP_API_KEY, password: '${BACKUP_PASSWORD}'}\n"
        "state: {database_url: 'postgresql://me:in-the-address@host/db'}\nlocal: {api_key: lm-studio}\n"
    )
    (home / ".env").write_text(
        "BOT=sesame-street-42\nSOME_API_KEYS=first-of-two,second-of-two\nOPENAI_BASE_URL=https://api.example.com/v1\n"
        "HERMES_MODEL=some-model-2024\nTELEGRAM_ALLOWED_USERS=1234567890\nPIN_CODE=12345678\nSHORT_TOKEN=abc\n"
    )
    for name, value in {
        "SERVICE_TOKEN": "from-the-environment", "MAX_TOKENS": "100000000", "SSH_AUTH_SOCK": "/run/user/1000/agent.1",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/service-1.json", "AWS_TOKEN_FILE": "/var/run/token1",
        "PWD": "/home/me/project-1", "PLAIN_VARIABLE": "plain-value-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    kept = [
        "claude-sonnet-4-20250514", "12800000", "my-own-platform", "ctrl+space", "BACKUP_API_KEY", "${BACKUP_PASSWORD}",
        "postgresql://me", "lm-studio", "https://api.example.com/v1", "some-model-2024", "1234567890", "abc",
        "100000000", "/run/user/1000/agent.1", "/home/me/service-1.json", "/var/run/token1", "/home/me/project-1",
        "plain-value-1",
    ]  # fmt: skip
    gone = [
        "key-in-the-config", "config-header-value", "token-in-a-list", "in-the-address", "sesame-street-42",
        "first-of-two", "second-of-two", "from-the-environment",
    ]  # fmt: skip
    for text in kept:
        assert redacted(f"<{text}>") == f"<{text}>"
    for text in gone:
        assert redacted(f"<{text}>") == f"<{COVER}>"


def test_a_changed_file_is_known_at_once_and_a_broken_one_is_no_obstacle(home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text("A_PASSWORD=first-password\n")
    assert redacted("first-password") == COVER
    (home / ".env").write_text("A_PASSWORD=another-password\n")
    assert redacted("first-password another-password") == f"first-password {COVER}"
    (home / ".env").write_text("no line of an env file\n")
    assert redacted("another-password xoxb-998877665544-abcdef") == f"{COVER} {COVER}"  # the last good one holds


@pytest.mark.parametrize(
    "text",
    ["plain words and https://example.com/path " * 50_000, "sk-" * 500_000, "eyJ-" * 500_000, "://a:" * 300_000,
     "-----BEGIN PRIVATE KEY-----" * 50_000, "TOKEN=" * 300_000, "Bearer " * 300_000],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_two_megabytes_of_anything_are_quick(text: str) -> None:
    cover = Redactor([f"value-number-{number}" for number in range(20)])
    start = time.process_time()
    cover(text)
    assert time.process_time() - start < 5  # quadratic would be minutes


def test_importing_it_is_cheap() -> None:
    code = "import sys, hermes_config.redaction; sys.exit('yaml' in sys.modules or 'logging' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(
    parts=st.lists(
        st.one_of(
            st.sampled_from(
                [
                    *KEYS,
                    "hunter2hunter2",
                    "API_KEY = abcdefgh12345678",
                    "Bearer abcdefgh12345678",
                    "two words.of-it",
                    "TOKEN",
                    "of the end.",
                    "eyJhbGc",
                    "sk-",
                    "-----BEGIN X-----",
                    "zwei 猫猫",
                ]
            ),
            AROUND,
        ),
        max_size=12,
    ),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_a_text_that_grows_is_covered_like_the_whole(parts: list[str], cuts: list[int]) -> None:
    redact = Redactor(["hunter2hunter2", "two words.of-it"])
    text = " ".join(parts)
    shown, held, at, turn = "", "", 0, 0
    while at < len(text):
        size = cuts[turn % len(cuts)]
        held += text[at : at + size]
        at, turn = at + size, turn + 1
        length = redact.settled(held)
        shown, held = shown + redact(held[:length]), held[length:]
    assert shown + redact(held) == redact(text)


def test_a_word_or_a_sentence_is_shown_at_once_and_a_blob_in_the_end() -> None:
    redact = Redactor(["hunter2hunter2"])
    for text in ("Once upon ", "It is done.", "猫が好き", "one\ntwo\n"):
        assert redact.settled(text) == len(text), text
    for text, length in (("It is hunt", 6), ("the API_KEY = ", 4), ("Bearer x.", 0), ("see eyJhbGc.", 4)):
        assert redact.settled(text) == length, text
    assert redact.settled("x" * 100_000) > 90_000


def test_the_values_of_the_home_are_looked_up_again_after_a_second(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(parents=True)
    now = [100.0]
    monkeypatch.setattr(redaction.time, "monotonic", lambda: now[0])
    assert redaction.current()("tigerlily4711") == "tigerlily4711"
    (home / ".env").write_text("OTHER_API_KEY=tigerlily4711\n")
    now[0] += 1.1
    assert redaction.current()("tigerlily4711") == COVER
    assert redaction.current() is redaction.current()


def test_no_pattern_needs_a_newer_python() -> None:
    """Before 3.11.5, `(?:a|b)*+` and its like match too little: Debian 12 has 3.11.2."""
    import re._constants as constants
    import re._parser as parser

    def operators(tree: object) -> set[object]:
        found: set[object] = set()
        for part in tree if isinstance(tree, list | tuple | parser.SubPattern) else ():
            found |= operators(part) if isinstance(part, list | tuple | parser.SubPattern) else {part}
        return found

    patterns = [shape.pattern for shape in redaction._SHAPES]
    patterns += [value for value in vars(redaction).values() if isinstance(value, re.Pattern)]
    newer = {constants.POSSESSIVE_REPEAT, constants.ATOMIC_GROUP}
    assert len(patterns) > 30
    assert [one.pattern for one in patterns if newer & operators(parser.parse(one.pattern, one.flags))] == []
    assert newer & operators(parser.parse("(?:a|b)*+"))
