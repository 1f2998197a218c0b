"""Colours, light and dark: one table for the window's own parts and one for what is said in it.

The window's are a Textual theme; the transcript is rendered by Rich with the styles given here. Without colours
(`NO_COLOR`) Textual takes them off everything alike, so nothing is told by a colour alone.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

from rich.console import Console
from rich.theme import Theme as RichTheme
from textual.theme import Theme

DARK = Theme(
    name="hermes-dark", primary="#7aa2f7", secondary="#9ece6a", accent="#e0af68", warning="#e0af68", error="#f7768e",
    success="#9ece6a", foreground="#d5d9e8", background="#16181f", surface="#1c1f29", panel="#242836", dark=True,
)  # fmt: skip
LIGHT = Theme(
    name="hermes-light", primary="#2f5fb3", secondary="#3d7a1f", accent="#9a6200", warning="#9a6200", error="#b3261e",
    success="#3d7a1f", foreground="#22252e", background="#fbfbf8", surface="#f2f2ec", panel="#e6e6de", dark=False,
)  # fmt: skip
THEMES = {"dark": DARK, "light": LIGHT}


@dataclass(frozen=True, slots=True)
class Inks:
    """What is said, in colour."""

    console: Console
    code: str
    """The name of the highlighting style of code."""
    person: str
    dim: str
    good: str
    bad: str
    code_ground: str


def inks(*, dark: bool) -> Inks:
    theme = DARK if dark else LIGHT
    dim, ground = ("#8b90a5", "#10121a") if dark else ("#6a6d78", "#eeeee6")
    styles = {
        "markdown.h1": f"bold underline {theme.primary}", "markdown.h2": f"bold {theme.primary}",
        "markdown.h3": f"bold {theme.primary}", "markdown.h4": "bold", "markdown.h5": "bold", "markdown.h6": "bold",
        "markdown.code": f"{theme.accent}", "markdown.block_quote": f"italic {dim}", "markdown.hr": dim,
        "markdown.item.bullet": f"{theme.primary}", "markdown.item.number": f"{theme.primary}",
        "markdown.link": f"{theme.primary}", "markdown.link_url": f"underline {dim}",
        "markdown.table.border": dim, "markdown.table.header": f"bold {theme.primary}",
    }  # fmt: skip
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False, emoji=False,
        markup=False, highlight=False, theme=RichTheme(styles), _environ={},
    )  # fmt: skip
    return Inks(
        console=console, code="monokai" if dark else "friendly", person=f"bold {theme.primary}", dim=dim,
        good=theme.success or "", bad=theme.error or "", code_ground=ground,
    )  # fmt: skip


def chosen_shade(skin: str) -> str:
    """`dark` or `light`: what is configured, else what the terminal says of its background, else dark."""
    if skin in THEMES:
        return skin
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in ("7", "15") else "dark"
