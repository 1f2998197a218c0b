"""Who may do what. The 40 rows were written by thinking about what an operator means, not by running the code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools import authorisation_page

from gateway.access.authorisation import (
    TERMINAL,
    Action,
    Decision,
    Known,
    PlatformRules,
    Policy,
    Principal,
    Question,
    ReadableConversation,
    Surface,
    Usable,
    api_client,
    approvers,
    decide,
)
from hermes_agent.commands import registry as command_registry
from hermes_agent.tools import registry
from hermes_state.ids import API_CLIENT, LOCAL_OWNER, PersonId

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "operators" / "authorisation.md"

ADA, BOB = PersonId("person_ada"), PersonId("person_bob")
USER, BOT = Principal("user", "telegram", "42"), Principal("bot", "telegram", "42")
DM, GROUP = Surface("dm", "telegram", "42"), Surface("group", "telegram", "-100")
ADDRESSED = GROUP._replace(addressed=True)
OTHER_GROUP = Surface("group", "telegram", "-200")

NOTHING = Policy(others=PlatformRules(unknown_dm="pair"))


def lists(**rules: Any) -> Policy:
    """Something said about Telegram; a list makes strangers be ignored, as the reader of the configuration does it."""
    return Policy(platforms={"telegram": PlatformRules(**rules)})


def knows(role: Any, standing: Any = "paired", **rules: Any) -> Policy:
    return replace(lists(**rules), people={("telegram", "", "42"): Known(ADA, role, standing)})


LISTED = lists(users=frozenset({"42"}))
OTHERS = lists(users=frozenset({"7"}))
OPEN = lists(everyone=True)
CHATS = lists(group_chats=frozenset({"-100"}))
MENTIONS, ALL_BOTS = lists(bots="mentions"), lists(bots="all")
APPROVER = replace(knows("member"), approvers=frozenset({("telegram", "42")}))

EVERYBODY, STAFF = frozenset({"owner", "admin", "member", "guest"}), frozenset({"owner", "admin"})
SHELL, CLARIFY = Usable("terminal", STAFF), Usable("clarify", EVERYBODY)
SESSIONS = Usable("sessions", EVERYBODY, private=True)
MINE, HIS = ReadableConversation(ADA), ReadableConversation(BOB)
OF_CHAT = ReadableConversation(None, ("telegram", "", "-100"))

# sender, place, action, resource, policy → the role with which it is allowed, "code", or "" for a denial
CORNER: list[tuple[Principal, Surface, Action, Any, Policy, str]] = [
    # A house about which nothing was said is closed; strangers may ask, in private.
    (USER, DM, "speak", None, NOTHING, "code"),
    (USER, GROUP, "speak", None, NOTHING, ""),
    (USER, ADDRESSED, "speak", None, NOTHING, ""),
    (USER, DM, "speak", None, Policy(), ""),
    (BOT, DM, "speak", None, NOTHING, ""),
    # Lists of users hold in private and in groups, and for nobody else.
    (USER, DM, "speak", None, LISTED, "member"),
    (USER, GROUP, "speak", None, LISTED, "member"),
    (USER, DM, "speak", None, OTHERS, ""),
    (USER, DM, "speak", None, Policy(users=frozenset({"42"})), "member"),
    (USER, GROUP, "speak", None, lists(group_users=frozenset({"42"})), "member"),
    (USER, DM, "speak", None, lists(group_users=frozenset({"42"})), ""),
    # A list of chats lets people speak there, and nowhere else.
    (USER, GROUP, "speak", None, CHATS, "guest"),
    (USER, OTHER_GROUP, "speak", None, CHATS, ""),
    (USER, DM, "speak", None, CHATS, ""),
    # Settings that let everybody in make guests; the general one gives way to any list.
    (USER, DM, "speak", None, OPEN, "guest"),
    (USER, DM, "speak", None, Policy(everyone=True), "guest"),
    (USER, DM, "speak", None, replace(OTHERS, everyone=True), ""),
    (USER, DM, "speak", None, replace(LISTED, everyone=True), "member"),
    # By hand: paired in, revoked out, whatever else is said.
    (USER, DM, "speak", None, knows("admin"), "admin"),
    (USER, DM, "speak", None, knows("owner", "seen", unknown_dm="pair"), "code"),
    (USER, DM, "speak", None, knows("owner", "revoked", users=frozenset({"42"})), ""),
    (USER, GROUP, "speak", None, knows("owner", "revoked", everyone=True), ""),
    (USER, DM, "speak", None, Policy(roles={("telegram", "42"): "owner"}), "owner"),
    # Bots: only where bots are allowed, and never more than guests.
    (BOT, GROUP, "speak", None, LISTED, ""),
    (BOT, GROUP, "speak", None, MENTIONS, ""),
    (BOT, ADDRESSED, "speak", None, MENTIONS, "guest"),
    (BOT, GROUP, "speak", None, replace(ALL_BOTS, roles={("telegram", "42"): "owner"}), "guest"),
    (BOT, ADDRESSED, "command", CLARIFY, ALL_BOTS, ""),
    # Roles decide what may be used.
    (USER, DM, "tool", SHELL, knows("owner"), "owner"),
    (USER, DM, "tool", SHELL, knows("member"), ""),
    (USER, DM, "tool", CLARIFY, knows("guest"), "guest"),
    (USER, GROUP, "command", SESSIONS, knows("owner"), ""),
    # Everybody reads what is theirs, where nobody reads along, and in a group the group's.
    (USER, DM, "read", MINE, knows("guest"), "guest"),
    (USER, DM, "read", HIS, knows("owner"), ""),
    (USER, GROUP, "read", OF_CHAT, knows("member"), "member"),
    (USER, DM, "read", OF_CHAT, knows("owner"), ""),
    # Leave is the owner's or a named approver's to give, in private.
    (USER, DM, "approve", Question(BOB), knows("owner"), "owner"),
    (USER, GROUP, "approve", Question(BOB), knows("owner"), ""),
    (USER, DM, "approve", Question(ADA), knows("admin"), ""),
    (USER, DM, "approve", Question(ADA), APPROVER, "member"),
]


def ended(answer: Decision) -> str:
    return answer.role if answer.allowed else "code" if answer.reply == "pair" else ""


@pytest.mark.parametrize("row", range(len(CORNER)))
def test_the_corner_that_was_written_by_hand(row: int) -> None:
    *facts, expected = CORNER[row]
    assert ended(decide(*facts)) == expected


def test_the_corner_has_forty_rows() -> None:
    assert len(CORNER) == 40


def test_the_page_is_what_the_function_says_and_a_running_gateway_does() -> None:
    """For keys of the API the page starts a gateway and asks it: terminal, files, other people's conversations."""
    page = authorisation_page.page()
    assert PAGE.read_text(encoding="utf-8") == page, "run `make docs`"
    _, _, table = page.partition("## What a key of the HTTP API can do")
    rows = dict(re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE))
    for deed, done in {
        "tools: terminal": "– | – | yes", "tools: write and read a file": "– | – | yes",
        "open `/api/ws`": "– | – | yes", "answer a question of permission, `/approve`": "– | – | –",
        "read another person's conversation": "– | – | –",
        "read the owner's conversations": "– | – | yes", "ask something (`POST /v1/chat/completions`)": "– | yes | yes",
        "there: answer a question of permission": "– | – | yes",
    }.items():  # fmt: skip
        assert rows[deed] == done, deed


# -- facts that somebody made up ---------------------------------------------------------------------------------

FORGED_IDS = [
    "", " ", "42 ", " 42", "4 2", "042", "0042", "+42", "-42", "42.0", "4_2", "42e0", "0x2a", "４２", "٤٢", "४२",
    "42\n", "42\0", "\u202e24", "4\u200b2", "42\u00a0", "\ufeff42", "telegram:42", "telegram 42", "@42", "42@telegram",
    "42@s.whatsapp.net", "Ada", "ada", "owner", "admin", "*", "%", "42,7", "[42]", "None", "null", "4" * 600,
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED_IDS, ids=ascii)
@pytest.mark.parametrize("place", [DM, GROUP], ids=["private", "group"])
def test_what_looks_like_an_id_is_not_one(forged: str, place: Surface) -> None:
    policy = replace(
        lists(users=frozenset({"42"}), group_users=frozenset({"42"}), group_chats=frozenset({"42"})),
        users=frozenset({"42"}),
        roles={("telegram", "42"): "owner"},
        approvers=frozenset({("telegram", "42")}),
        imported=frozenset({("telegram", "42")}),
        people={
            ("telegram", "", "42"): Known(ADA, "owner", "paired"),
            ("local", "", "owner"): Known(LOCAL_OWNER, "owner", "seen"),
        },
    )
    who = Principal("user", "telegram", forged)
    for action in get_args(Action):
        resource = {"approve": Question(BOB), "read": MINE}.get(action, CLARIFY)
        answer = decide(who, place, action, resource, policy)
        assert not answer.allowed and answer.person_id is None, (action, answer)
    assert decide(USER, place, "speak", None, policy).role == "owner"  # the policy itself lets the real one in


# fmt: off
MISFITS = {
    "same id elsewhere": (Principal("user", "discord", "42"), Surface("dm", "discord", "42")),
    "platforms differ": (USER, Surface("dm", "discord", "42")),
    "accounts differ": (USER, Surface("dm", "telegram", "42", account="second")),
    "platform by look": (Principal("user", "Telegram", "42"), Surface("dm", "Telegram", "42")),
    "no platform": (Principal("user", "", "42"), Surface("dm", "", "42")),
    "a bot with a person's id": (BOT, DM),
    "says it is this machine": (Principal("local", "telegram", "42"), DM),
    "this machine, elsewhere": (Principal("local", "local", "owner"), Surface("dm", "local", "owner")),
    "a user called owner": (Principal("user", "local", "owner"), Surface("dm", "local", "owner")),
    "a user at the terminal": (Principal("user", "local", "owner"), Surface("terminal", "local")),
    "a key in a chat": (Principal("api_key", "telegram", "42"), DM),
    "a user at the API": (Principal("user", "api_server", "42"), Surface("api", "api_server")),
    "a chat's user at the terminal": (USER, Surface("terminal", "telegram")),
    "group id is a user's id": (Principal("user", "telegram", "7"), Surface("group", "telegram", "42")),
    "user id is a group's id": (Principal("user", "telegram", "-100"), DM),
    "user id is a group's id, in a group": (Principal("user", "telegram", "-100"), OTHER_GROUP),
}
# fmt: on


@pytest.mark.parametrize(("who", "where"), MISFITS.values(), ids=MISFITS)
def test_facts_that_do_not_belong_together_let_nobody_in(who: Principal, where: Surface) -> None:
    policy = replace(
        knows("owner", users=frozenset({"42"}), group_chats=frozenset({"-100"})),
        roles={("telegram", "42"): "owner"},
    )
    for action in get_args(Action):
        assert not decide(who, where, action, Question(None), policy).allowed


def test_an_id_is_compared_whole() -> None:
    mail = Policy(platforms={"email": PlatformRules(users=frozenset({"ada"}))})
    assert not decide(
        Principal("user", "email", "ada@evil.example"), Surface("dm", "email", "x"), "speak", None, mail
    ).allowed


# -- total, and closed by default --------------------------------------------------------------------------------

names = st.sampled_from(["", "42", "7", "owner", "-100", "*", "local", "telegram", "api_server"]) | st.text(max_size=8)
principals = st.builds(Principal, st.sampled_from(["user", "bot", "api_key", "local", "?"]), names, names, names)
surfaces = st.builds(
    Surface, st.sampled_from(["dm", "group", "api", "terminal", "?"]), names, names, names, st.booleans()
)
actions = st.sampled_from([*get_args(Action), "destroy", ""])
resources = st.sampled_from([None, SHELL, CLARIFY, SESSIONS, MINE, HIS, OF_CHAT, Question(None), Question(ADA, BOB)])


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first text draws a table of all characters
@given(principals, surfaces, actions, resources)
def test_a_closed_house_lets_in_nobody_but_the_machine_and_a_key(who: Any, where: Any, action: Any, about: Any) -> None:
    answer = decide(who, where, action, about, Policy())
    if answer.allowed:
        assert (who, where) == TERMINAL or (who.kind, where.kind, who.platform) == ("api_key", "api", "api_server")


@given(principals, surfaces, actions, resources)
def test_every_question_has_an_answer_and_a_bot_never_rises(who: Any, where: Any, action: Any, about: Any) -> None:
    policy = replace(knows("owner", everyone=True, bots="all"), everyone=True, users=frozenset({"42"}))
    answer = decide(who, where, action, about, policy)
    assert answer.reason
    if answer.allowed:
        assert action in get_args(Action) and not answer.reply
        assert who.kind != "bot" or (answer.role == "guest" and action in ("speak", "tool"))
    if answer.reply:
        assert who.kind == "user" and where.kind == "dm"


# -- the tables of tools and commands are the ones in force ------------------------------------------------------


def test_members_and_guests_have_no_terminal_and_no_files() -> None:
    known = registry.Registry()
    for role in ("member", "guest"):
        for name in ("terminal", "read_file", "write_file", "patch", "search_files"):
            tool = known.get(name)
            assert tool is not None
            assert not decide(USER, DM, "tool", Usable(name, tool.roles), knows(role)).allowed
    for name in known.names():
        tool = known.get(name)
        assert tool is not None
        for role in ("owner", "admin"):
            assert decide(USER, DM, "tool", Usable(name, tool.roles), knows(role)).allowed


def test_commands_are_judged_by_their_own_row() -> None:
    row = command_registry.table("gateway")["model"]
    assert decide(USER, DM, "command", Usable(row.name, row.roles, row.private), knows("member")).allowed
    assert not decide(USER, DM, "command", Usable(row.name, row.roles, row.private), knows("guest")).allowed


# -- approvers ---------------------------------------------------------------------------------------------------


def test_whom_to_ask() -> None:
    policy = Policy(
        people={
            ("telegram", "", "1"): Known(PersonId("p1"), "owner", "paired"),
            ("telegram", "", "2"): Known(PersonId("p2"), "admin", "paired"),
            ("telegram", "", "3"): Known(PersonId("p3"), "member", "paired"),
            ("telegram", "", "4"): Known(PersonId("p4"), "owner", "revoked"),
            ("telegram", "", "5"): Known(PersonId("p5"), "owner", "seen"),
            ("local", "", "owner"): Known(LOCAL_OWNER, "owner", "seen"),
        },
        roles={("telegram", "6"): "owner", ("telegram", "7"): "admin"},
        approvers=frozenset({("telegram", "3"), ("telegram", "8")}),
    )
    found = [who.native_id for who in approvers(Question(PersonId("p2")), policy)]
    # The owners first; 4 is shut out, 5 has no way in, 8 is named but unknown to any list.
    assert found == ["1", "6", "3"]
    assert [who.native_id for who in approvers(Question(PersonId("p2"), PersonId("p3")), policy)] == ["3"]


def test_a_question_that_was_put_to_one_person_is_theirs() -> None:
    assert decide(USER, DM, "approve", Question(BOB, ADA), knows("owner")).allowed
    assert not decide(USER, DM, "approve", Question(ADA, BOB), knows("owner")).allowed


def test_the_terminal_gives_leave_and_a_key_does_not() -> None:
    assert decide(*TERMINAL, "approve", Question(BOB), Policy()).allowed
    assert decide(*TERMINAL, "read", HIS, Policy()).allowed
    client = api_client("key1")
    for person, role in ((LOCAL_OWNER, "owner"), (API_CLIENT, "member"), (ADA, "owner"), (ADA, "admin")):
        policy = Policy(people={("api_server", "", "key1"): Known(person, role, "seen")})  # type: ignore[arg-type]
        capped = "owner" if person == LOCAL_OWNER else "member"
        assert decide(*client, "speak", None, policy).role == capped, "a key is the owner's, or a client's"
        shell = Usable("terminal", frozenset({"owner", "admin"}))
        assert decide(*client, "tool", shell, policy).allowed == (capped == "owner")
        assert not decide(*client, "approve", Question(BOB), policy).allowed
        assert not decide(*client, "read", HIS, policy).allowed
    revoked = Policy(people={("api_server", "", "key1"): Known(LOCAL_OWNER, "owner", "revoked")})
    assert not decide(*client, "speak", None, revoked).allowed


# -- several accounts of ours ------------------------------------------------------------------------------------


def test_a_word_without_an_account_holds_for_all_and_a_closer_one_beats_it() -> None:
    who = Principal("user", "slack", "U1", "team")
    place = Surface("dm", "slack", "D1", "team")
    general, exact = ("slack", "", "U1"), ("slack", "team", "U1")

    def enters(**people: Any) -> Decision:
        return decide(
            who,
            place,
            "speak",
            None,
            Policy(people={{"general": general, "exact": exact}[k]: v for k, v in people.items()}),
        )

    paired, revoked, seen = (Known(ADA, "admin", standing) for standing in ("paired", "revoked", "seen"))
    assert enters(general=paired).allowed
    assert not enters(general=revoked, exact=seen).allowed
    assert enters(general=revoked, exact=paired).allowed
    assert not enters(general=paired, exact=revoked).allowed
    elsewhere = Policy(people={("slack", "other", "U1"): paired})
    assert not decide(who, place, "speak", None, elsewhere).allowed
