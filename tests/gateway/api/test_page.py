"""The page for users says what is: its examples run, its paths exist."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from tests.gateway.api.conftest import Open
from tests.gateway.api.door import KEY

from hermes_testing.scripted.model import ScriptedModel, say

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs/users/api.md").read_text(encoding="utf-8")


def test_the_example_in_python(door: Open) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None

    async def go() -> None:
        with ScriptedModel(say("Hello ", "there.")) as model:
            async with door(model) as here:
                script = code[1].replace("http://127.0.0.1:8642", here.url)
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env={**os.environ, "HERMES_KEY": KEY}
                )
                out, _ = await child.communicate()
                assert (child.returncode, out) == (0, b"Hello there.")

    asyncio.run(go())


def test_every_path_of_the_page_is_there(door: Open) -> None:
    table = PAGE.partition("## Paths")[2].partition("Errors are")[0]
    paths = set(re.findall(r"/(?:v1|api|health|readyz|metrics)[a-z/{}]*", table))
    paths |= {f"/api/sessions/{{id}}{verb}" for verb in re.findall(r"`(/(?:chat|fork)[a-z/]*)`", table)}

    async def go() -> None:
        async with door() as here:
            for path in paths:
                answer = await here.client.get(path.replace("{id}", "x"))
                assert "unknown_path" not in answer.text, path

    assert len(paths) == 15
    asyncio.run(go())
