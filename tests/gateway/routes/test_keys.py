"""The session key: the reference's where that is unambiguous, and never the same for two places."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.config import Platform
from gateway.routes.keys import KeyParts, aliases, build_session_key, is_shared_multi_user_session, key_of, key_parts
from gateway.routes.source import SessionSource
from hermes_state.ids import is_possible_id
from hermes_state.transfer.import_home import route_entry as written

pytestmark = pytest.mark.slow


def source(chat_type: str = "dm", chat: str = "", user: str | None = None, thread: str | None = None) -> SessionSource:
    return SessionSource(Platform.TELEGRAM, chat, chat_type=chat_type, user_id=user, thread_id=thread)


@pytest.mark.parametrize(
    ("where", "key"),
    [
        (source("dm", "42"), "dm:42"),
        (source("dm", "42", "42", "77"), "dm:42:77"),
        (source("group", "-100", "42"), "group:-100:42"),
        (source("channel", "C01", "U7"), "channel:C01:U7"),
        (source("group", "-100"), "group:-100"),
        (source("thread", "900", "u", "901"), "thread:900:901"),
        (source("dm"), "dm"),
    ],
)
def test_the_reference_key_where_it_means_one_thing(where: SessionSource, key: str) -> None:
    assert build_session_key(where) == f"agent:main:telegram:{key}"
    assert aliases(where) == ()


@pytest.mark.parametrize(
    ("where", "theirs"),
    [
        (source("group", "-1", "42", "7"), "group:-1:7"),
        (source("group", "!room:example.org", "@ada:example.org"), "group:!room:example.org:@ada:example.org"),
        (source("dm", "", "42"), "dm:42"),
        (source("dm", "", None, "77"), "dm:77"),
    ],
)
def test_where_their_key_could_mean_two_things_ours_differs_and_theirs_is_an_alias(
    where: SessionSource, theirs: str
) -> None:
    assert aliases(where) == (f"agent:main:telegram:{theirs}",)
    assert build_session_key(where) != f"agent:main:telegram:{theirs}"


def test_a_groups_topic_and_its_member_of_the_same_number_are_two_places() -> None:
    member, topic = source("group", "-1", "7"), source("group", "-1", "42", "7")
    assert build_session_key(member) == "agent:main:telegram:group:-1:7"
    assert build_session_key(topic) == "agent:main:telegram:group:-1:%thread:7"


def test_two_people_in_one_group() -> None:
    """Scenario 22."""
    ada, bob = source("group", "-1", "1"), source("group", "-1", "2")
    assert build_session_key(ada) != build_session_key(bob)
    assert build_session_key(ada, False) == build_session_key(bob, False) == "agent:main:telegram:group:-1"
    ada.thread_id = bob.thread_id = "9"
    assert build_session_key(ada) == build_session_key(bob)
    assert build_session_key(ada, True, True) != build_session_key(bob, True, True)
    dm = source("dm", "1", "1", "9")
    assert len({build_session_key(dm, group, thread) for group in (True, False) for thread in (True, False)}) == 1


def test_a_dm_without_a_chat_is_its_persons() -> None:
    """Scenario 24."""
    assert build_session_key(source("dm", "", "1")) != build_session_key(source("dm", "", "2"))


def test_a_profile_has_keys_of_its_own() -> None:
    assert build_session_key(source("dm", "42"), profile="work") == "agent:work:telegram:dm:42"


def test_who_shares_a_conversation() -> None:
    assert not is_shared_multi_user_session(source("dm", "1", "1", "9"), False)
    assert not is_shared_multi_user_session(source("group", "-1", "1"))
    assert is_shared_multi_user_session(source("group", "-1", "1"), False)
    assert is_shared_multi_user_session(source("thread", "-1", "1", "9"))
    assert not is_shared_multi_user_session(source("thread", "-1", "1", "9"), True, True)


# Small alphabets, so that generated places meet: separators, our own escape, dots, what no row can hold.
_part = st.text(alphabet=[":", "%", ".", "7", "a", "\0", "\ud800", "é"], max_size=4) | st.sampled_from(
    ["", "%thread", "%user", "%3A", "7", "..", "x" * 1100, "y" * 1100]
)
_place = st.builds(
    KeyParts,
    profile=st.sampled_from(["main", "work", "a:b"]),
    platform=st.sampled_from(["telegram", "discord"]),
    chat_type=st.sampled_from(["dm", "group", "thread", "channel", "dm:x"]),
    chat=_part,
    thread=_part,
    person=_part,
)


def _counts(place: KeyParts) -> KeyParts:
    """A direct chat with a chat id is that chat, whoever writes in it."""
    return place._replace(person="") if place.chat_type == "dm" and place.chat else place


@settings(max_examples=1500, deadline=None)
@given(_place, _place)
@example(KeyParts("main", "t", "group", "-1", "7", ""), KeyParts("main", "t", "group", "-1", "", "7"))
@example(KeyParts("main", "t", "group", "", "a", "b"), KeyParts("main", "t", "group", "a", "b", ""))
@example(KeyParts("main", "t", "dm", "7", "", ""), KeyParts("main", "t", "dm", "", "", "7"))
@example(KeyParts("main", "t", "group", "a:b", "", "c"), KeyParts("main", "t", "group", "a", "", "b:c"))
def test_two_places_never_have_one_key(one: KeyParts, other: KeyParts) -> None:
    one, other = _counts(one), _counts(other)
    assert (key_of(one) == key_of(other)) == (one == other)


@settings(max_examples=300, deadline=None)
@given(_part, _part, _part, st.sampled_from(["dm", "group", "thread"]), st.booleans(), st.booleans())
def test_every_source_has_a_key_that_a_row_and_a_file_can_hold(
    chat: str, user: str, thread: str, kind: str, group: bool, threads: bool
) -> None:
    where = source(kind, chat, user, thread)
    key = build_session_key(where, group, threads)
    assert is_possible_id(key)
    assert written.session_key(key) == key
    assert key == key_of(key_parts(where, group, threads))
