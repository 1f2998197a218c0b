"""The reply of a turn that said nothing."""

from __future__ import annotations

import pytest

from gateway.run import _normalize_empty_agent_response


@pytest.mark.parametrize("said", [None, "", " \n", "(empty)"])
def test_a_turn_without_words_still_tells_the_person(said: str | None) -> None:
    assert _normalize_empty_agent_response({"api_calls": 1}, said).startswith("No response was generated")
    assert _normalize_empty_agent_response({"api_calls": 1, "interrupted": True}, said) == ""
