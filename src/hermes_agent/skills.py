"""Skills. (Signatures; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_config.errors import HermesError


class SkillNotFound(HermesError):
    """There is no such skill."""


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    category: str
    folder: Path
    version: str = ""
    tags: tuple[str, ...] = ()
    related: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    skill: Skill
    file: str
    """Relative to the skill's folder."""
    content: str
    files: tuple[str, ...] = field(default=())
    """What else can be viewed."""


class Skills:
    """What was found, in order of category and name."""

    skills: tuple[Skill, ...]

    def index(self) -> str:
        """The part of the system text: names and descriptions by category; empty when there are none."""
        raise NotImplementedError

    def view(self, name: str, file: str | None = None) -> View:
        """SKILL.md, or a file inside the skill's folder. Raises `SkillNotFound`."""
        raise NotImplementedError


def discover(home: Path, config: Mapping[str, Any], *, platform: str = "") -> Skills:
    """`config` is config.yaml's tree (skills.external_dirs, skills.disabled, skills.platform_disabled)."""
    raise NotImplementedError
