"""Which models see pictures, by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.media.pictures import is_seen_by
from hermes_config import config

SEE = (
    "gpt-4o", "openai/gpt-4o-mini", "chatgpt-4o-latest", "gpt-4.1-nano", "gpt-5", "gpt-5.1-codex", "o3",
    "openai/o3-pro", "o4-mini", "claude-sonnet-4-5", "us.anthropic.claude-3-haiku", "google/gemini-2.5-flash",
    "llava:13b", "bakllava", "llava-llama3", "mistralai/pixtral-12b", "qwen-vl-max", "qwen/qwen2.5-vl-72b",
    "qwen2.5vl:7b", "Qwen3-VL",
)  # fmt: skip
DO_NOT = (
    "o3-mini", "openai/o3-mini-high", "qwen-turbo3", "qwen3", "turbo3", "solo4", "gpt-4", "gpt-4.10", "gpt-3.5-turbo",
    "gpt-oss:20b", "foo3-large", "deepseek-chat", "llama3", "mistral-large", "scripted",
)  # fmt: skip


@pytest.mark.parametrize("model", [*SEE, *DO_NOT])
def test_whole_parts_of_a_name_say_whether_a_model_sees(home: Path, model: str) -> None:
    assert is_seen_by(config.load(), model) == (model in SEE)
