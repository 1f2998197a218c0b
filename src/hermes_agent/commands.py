"""Slash commands. (Signatures; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hermes_agent.command_set.base import Command, CommandContext, Surface

__all__ = ["Command", "CommandContext", "Invocation", "help_text", "parse", "run", "table"]


@dataclass(frozen=True, slots=True)
class Invocation:
    name: str
    args: str
    bot: str = ""
    """Whom it was addressed to (`/new@bot`); empty when nobody was named."""


def parse(text: str) -> Invocation | None:
    """None for what is not a slash command and belongs to the model."""
    raise NotImplementedError


def table(surface: Surface) -> Mapping[str, Command]:
    """The commands of a surface by name: ours, then those of plug-ins."""
    raise NotImplementedError


def help_text(surface: Surface, *, role: str = "owner") -> str:
    raise NotImplementedError


async def run(ctx: CommandContext, text: str) -> bool:
    """Answer a slash command through `ctx.reply`. False: it is none, the text belongs to the model."""
    raise NotImplementedError
