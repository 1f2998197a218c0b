"""docs/users/{instructions,memory,skills}.md: the files they name reach the model, and the example skill is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_testing.scripted.model import ScriptedModel, always, say
from hermes_testing.scripted.server import ScriptedServer

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "users" / "skills.md").read_text(encoding="utf-8")


def test_the_files_of_the_page_reach_the_model(home: Path, tmp_path: Path) -> None:
    skill = re.findall(r"^```markdown\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
    place = tmp_path / "place"
    for file, text in {
        home / "SOUL.md": "You are the soul of a bakery.",
        home / "memories" / "MEMORY.md": "The oven is old.",
        home / "memories" / "shared" / "MEMORY.md": "We close on Mondays.",
        home / "skills" / "bread" / "SKILL.md": skill,
        place / "AGENTS.md": "Weigh in grams.",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    home.chmod(0o700)

    def hermes(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "hermes_cli", *words], cwd=place, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with ScriptedModel(always(say("Yes."))) as model, ScriptedServer(model) as server:
        address = server.endpoint().base_url
        (home / "config.yaml").write_text(
            f"model: {{default: {model.model}, provider: custom, base_url: '{address}', api_key: {model.api_key}}}\n"
        )
        assert hermes("-z", "hello") == "Yes.\n"
        told = model.requests[0].body.decode()
    for words in ("soul of a bakery", "The oven is old.", "We close on Mondays.", "Weigh in grams.", "a day's baking"):
        assert words in told, words
    assert "rests for 12 hours" not in told, "the rest is read when it is needed"
    assert "bread" in hermes("skills", "list") and "rests for 12 hours" in hermes("skills", "show", "bread")
