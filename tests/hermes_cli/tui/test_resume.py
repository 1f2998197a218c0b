"""A conversation that the window's list shows is found by its name, too, whoever talked in it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.hermes_cli.tui.conftest import Sit

from hermes_state import SessionDB

pytestmark = pytest.mark.slow


@pytest.fixture
def others(place: Path, home: Path) -> None:
    """Conversations of another person and of a group, and one of the owner's."""
    with contextlib.closing(SessionDB(home / "state.db")) as db:
        bea = db.people.ensure(platform="telegram", native_id="7", display_name="Bea", role="member").id
        made = [
            (db.ledger.open(source="cli"), "Kyoto plans of mine", "temples of my own"),
            (db.ledger.open(source="telegram", owner=bea), "Kyoto", "gardens of hers"),
            (db.ledger.open(source="telegram", fields={"chat_type": "group"}), None, "who brings\nthe marmalade?"),
        ]
        for handle, title, said in made:
            db.append_message(handle.session_id, "user", said)
            if title:
                db.set_session_title(handle.session_id, title)


@pytest.mark.parametrize(
    ("shown", "named", "said"),
    [
        pytest.param("Kyoto  telegram", "kyoto", "❯ gardens of hers", id="another person"),
        pytest.param("who brings the marmalade?  telegram", "who brings the", "the marmalade?", id="a group"),
        pytest.param("Kyoto plans of mine  terminal", "plans of", "❯ temples of my own", id="own, by a part"),
    ],
)
@pytest.mark.usefixtures("others")
def test_what_the_list_shows_is_found_by_its_name(sit: Sit, shown: str, named: str, said: str) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.say("/resume")
            await person.see(shown)
            await person.press("escape")
            await person.until(lambda screen: "Escape closes" not in screen, "closed")
            await person.say(f"/resume {named}")
            assert said in await person.see("Resumed: ")

    asyncio.run(scene())


@pytest.mark.usefixtures("others")
def test_what_fits_several_is_asked_back_and_what_fits_none_is_said(sit: Sit) -> None:
    async def scene() -> None:
        async with sit() as person:
            await person.ready()
            await person.say("/resume kyot")
            shown = await person.see("“kyot” fits 2 conversations")
            assert "Kyoto plans of mine" in shown and "Kyoto · telegram" in shown
            await person.say("/resume Osaka")
            await person.see("There is no conversation “Osaka”.")
            await person.say("/resume 7")
            await person.see("There is no conversation “7”.")

    asyncio.run(scene())
