"""What a check can find."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be; a *note* is worth knowing and nothing is wrong."""

    code: str
    what: str
    fix: str
    """What to do about it."""
    count: int = 1
    examples: list[str] = field(default_factory=list)
    mendable: bool = False
    note: bool = False
