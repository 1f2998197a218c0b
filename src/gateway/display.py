"""How a turn is shown in a chat: streamed or not, how often edited, with which lines about tools.

Read from `streaming:` and `display:`; what stands under `display.platforms.<name>` counts for that platform alone. An
answer streams wherever the platform can edit a message, unless the configuration says otherwise: the reference's
default is off, ours is on, because a person who looks at an empty chat for a minute writes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.board import Board
from gateway.platforms.base import BasePlatformAdapter

TOOL_LINES = ("off", "new", "all", "verbose")
_TOOL_LINES_OF = {
    "discord": "all",
    "telegram": "off",
    "slack": "off",
    "mattermost": "new",
    "matrix": "new",
    "feishu": "new",
    "whatsapp": "new",
}
_PREVIEW_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    streams: bool
    interval: float
    """Seconds between two edits of a message, at least."""
    threshold: int
    """So many characters, or a sentence, before anything is shown."""
    cursor: str
    tool_lines: str
    preview_chars: int


def of(board: Board, adapter: BasePlatformAdapter) -> Display:
    """What the configuration says for this adapter's platform."""
    streaming, name = board.settings.streaming, adapter.platform.value
    tree = board.config.tree
    display = _mapping(tree.get("display"))
    own = _mapping(_mapping(display.get("platforms")).get(name))
    lines = _word(own.get("tool_progress", display.get("tool_progress"))) or _TOOL_LINES_OF.get(name, "new")
    preview = own.get("tool_preview_length", display.get("tool_preview_length"))
    return Display(
        streams=adapter.supports_edit and streaming.transport != "off" and _streams(tree, own, streaming.enabled),
        interval=max(streaming.edit_interval, adapter.edit_seconds),
        threshold=streaming.buffer_threshold,
        cursor=streaming.cursor,
        tool_lines=lines,
        preview_chars=preview if isinstance(preview, int) and 0 < preview <= 500 else _PREVIEW_CHARS,
    )


def _streams(tree: Mapping[str, Any], own: Mapping[str, Any], enabled: bool) -> bool:
    """Off only where somebody wrote so."""
    if isinstance(own.get("streaming"), bool):
        return bool(own["streaming"])
    written = [_mapping(tree.get("gateway")).get("streaming"), tree.get("streaming")]
    said = any(isinstance(one, bool) or "enabled" in _mapping(one) or "mode" in _mapping(one) for one in written)
    return enabled if said else True


def _word(value: object) -> str:
    """YAML reads a bare `off` as false."""
    if value is False:
        return "off"
    return value if isinstance(value, str) and value in TOOL_LINES else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
