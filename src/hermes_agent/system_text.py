"""The system text. (Signature; the body follows.)"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything the system text is made of, as text. Gathered once, at the beginning of an epoch."""

    identity: str = ""
    """SOUL.md; the shipped one when empty."""
    guidance: tuple[str, ...] = ()
    skills: str = ""
    platform_hint: str = ""
    extra: str = ""
    """A personality or what the caller of the agent gave."""
    project: str = ""
    memory: str = ""
    """Only where one person owns the conversation alone."""
    model: str = ""
    provider: str = ""
    day: str = ""
    """The day of the conversation's start; the only clock in the text."""


def build(parts: Parts) -> str:
    raise NotImplementedError
