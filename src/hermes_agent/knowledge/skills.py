"""Skills: folders with a SKILL.md that teach the agent to do something, loaded only when they are needed.

Skills are found in `<home>/skills/[category/]<name>/SKILL.md`, in the same layout below each of `skills.external_dirs`,
and in plug-ins. The system text holds an index, one line a skill; `view` reads a skill's text and the files beside it.
If two skills have one name, the home's wins, then the earlier folder's.

A broken skill is not hidden: it is listed under its folder's name, and `problems` says what is wrong. Strangers may
write skills, so a description that looks like orders to the model is replaced by a note, and `view` reads no file
outside the skill's folder.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hermes_agent.prompt.injection_scan import suspicion
from hermes_agent.text import brief, close_names
from hermes_config import accounts
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_config.limits import Limits


MAIN = "SKILL.md"
GENERAL = "general"
_SYSTEMS = {"macos": "darwin", "mac": "darwin", "osx": "darwin", "windows": "win32"}


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


@dataclass(frozen=True, slots=True)
class SkillView:
    skill: Skill
    file: str
    """Relative to the skill's folder."""
    content: str
    files: tuple[str, ...] = ()
    """The skill's other files that can be viewed."""


@dataclass(frozen=True, slots=True)
class Skills:
    """The skills that were found, sorted by category and name."""

    skills: tuple[Skill, ...]
    problems: tuple[str, ...]
    limits: Limits

    def index(self) -> str:
        """The skills' part of the system text: names and descriptions by category; empty without skills."""
        if not self.skills:
            return ""
        intro = "Instructions for tasks you may be given. Load one with skill_view before you begin such a task."
        return "\n\n".join(["# Skills", intro, *self.by_category()])

    def by_category(self, wanted: str | None = None) -> list[str]:
        """One text a category, or of the wanted one alone: its name, and a line for each of its skills."""
        found: dict[str, list[str]] = {}
        for skill in self.skills:
            if wanted in (None, skill.category):
                about = _brief(skill.description, self.limits.skill_description_chars)
                found.setdefault(skill.category, [f"{skill.category}:"]).append(f"- {skill.name}: {about}")
        return ["\n".join(lines) for lines in found.values()]

    def get(self, name: str, *, listed_by: str = "skills_list") -> Skill:
        """The skill `name` or `category/name`. `listed_by`: the command that lists names, for the error's hint."""
        wanted = name.strip()
        for skill in self.skills:
            if wanted in (skill.name, f"{skill.category}/{skill.name}"):
                return skill
        near = close_names(wanted, [skill.name for skill in self.skills])
        hint = f"Did you mean {', '.join(near)}?" if near else f"{listed_by} shows what there is."
        raise SkillNotFound(f"there is no skill {wanted!r:.80}", hint=hint)

    def view(self, name: str, file: str | None = None, *, listed_by: str = "skills_list") -> SkillView:
        """Read SKILL.md, or another file inside the skill's folder."""
        skill = self.get(name, listed_by=listed_by)
        wanted = file.strip() if file and file.strip() else MAIN
        content = _read_inside(skill, wanted, self.limits)
        others = tuple(other for other in _files(skill.folder, self.limits.skill_files) if other != wanted)
        return SkillView(skill, wanted, content, others)


def discover(config: Config, *, platform: str = "") -> Skills:
    """The enabled skills of a home, of `skills.external_dirs` and of plug-ins."""
    from hermes_cli import plugins  # the registries; not needed to read a skill

    settings, limits = config.skills, config.limits
    disabled = {*settings.disabled, *accounts.told(settings.platform_disabled, platform, ())}
    found: dict[str, Skill] = {}
    problems: list[str] = []
    there = ((category, folder, "", "") for root in _roots(config) for category, folder in _folders(root))
    own = list(islice(there, limits.skills_found + 1))
    if len(own) > limits.skills_found:
        problems.append(f"more than {limits.skills_found:,} skills: the rest is not offered")
    given = [
        ("plugins", one.path if one.path.is_dir() else one.path.parent, one.name, one.description)
        for one in plugins.get_plugin_skills()
    ]
    for category, folder, name, description in (*own[: limits.skills_found], *given):
        skill = _load(folder, category, problems, limits, name=name, description=description)
        if skill is not None and skill.name not in disabled:
            found.setdefault(skill.name, skill)
    order = sorted(found.values(), key=lambda skill: (skill.category, skill.name))
    return Skills(tuple(order), tuple(problems), limits)


def _roots(config: Config) -> Iterator[Path]:
    yield config.home / "skills"
    for given in config.skills.external_dirs:
        yield config.home / Path(os.path.expandvars(given)).expanduser()


def _folders(root: Path) -> Iterator[tuple[str, Path]]:
    """(category, folder) of every folder with a SKILL.md, in a fixed order."""
    for entry in _subfolders(root):
        if (entry / MAIN).is_file():
            yield GENERAL, entry
            continue
        for inner in _subfolders(entry):
            if (inner / MAIN).is_file():
                yield entry.name, inner


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.is_dir())
    except OSError:  # a missing or unreadable folder holds no skills
        return []


# -- one skill ---------------------------------------------------------------------------------------------


def _load(
    folder: Path, category: str, problems: list[str], limits: Limits, *, name: str = "", description: str = ""
) -> Skill | None:
    """The skill in a folder; None for another operating system's skill or an unreadable one."""
    try:
        front = _front_matter(_text(folder / MAIN, limits))
    except OSError as error:
        problems.append(f"{folder / MAIN}: it cannot be read: {error.strerror}")
        return None
    except _NoFront as error:
        if not description:  # a plug-in may give it instead
            problems.append(f"{folder / MAIN}: {error}")
        front = {}
    except ValueError as error:
        line = f":{error.line}" if isinstance(error, _BrokenFront) else ""
        problems.append(
            f"{folder / MAIN}{line}: {_one_line(str(error))}; until it is corrected, no description is shown"
        )
        front = {}
    else:
        if not description and not str(front.get("description") or "").strip():
            problems.append(f"{folder / MAIN}: it has no description, so the model cannot tell when to read it")
    if not _runs_here(front.get("platforms")):
        return None
    metadata = front.get("metadata")
    hermes = metadata.get("hermes") if isinstance(metadata, Mapping) else None
    hermes = hermes if isinstance(hermes, Mapping) else {}
    return Skill(
        name=name or _one_line(str(front.get("name") or folder.name))[:64],
        description=_one_line(str(front.get("description") or description or "")),
        category=category,
        folder=folder,
        version=_one_line(str(front.get("version") or "")),
        tags=_texts(hermes.get("tags")),
    )


def problem_of(text: str) -> str:
    """What is wrong with the text of a SKILL.md; empty if nothing is."""
    try:
        front = _front_matter(text)
    except ValueError as error:
        return str(error)
    missing = [name for name in ("name", "description") if not str(front.get(name) or "").strip()]
    return f"the part between the lines --- needs {' and '.join(missing)}" if missing else ""


class _NoFront(ValueError):
    pass


class _BrokenFront(ValueError):
    def __init__(self, why: str, line: int) -> None:
        super().__init__(f"the part between the lines --- {why}")
        self.line = line


def _front_matter(text: str) -> Mapping[str, Any]:
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        raise _NoFront("it has no part between two lines ---, which needs name and description")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        raise _BrokenFront("has no second line ---", 1)
    import yaml  # only where there are skills

    try:
        front = yaml.safe_load("\n".join(lines[1:end]))
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        why = getattr(error, "problem", None) or "cannot be parsed"
        raise _BrokenFront(f"is not valid YAML: {why}", 2 + min(mark.line, end - 2) if mark else 2) from error
    if front is not None and not isinstance(front, Mapping):
        raise _BrokenFront("has to consist of lines NAME: VALUE", 2)
    return front or {}


def _runs_here(platforms: Any) -> bool:
    names = _texts(platforms)
    return not names or any(sys.platform.startswith(_SYSTEMS.get(name.lower(), name.lower())) for name in names)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _brief(description: str, chars: int) -> str:
    why = suspicion(description)
    if why is not None:
        return f"[its description is not shown: {why}]"
    return brief(description, chars)


# -- files -------------------------------------------------------------------------------------------------


def _read_inside(skill: Skill, file: str, limits: Limits) -> str:
    place = PurePosixPath(file.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts or "\0" in file:
        raise SkillNotFound(
            f"{file!r:.80} is not inside the skill {skill.name}", hint="Give a path as skill_view lists it."
        )
    folder = skill.folder.resolve()
    try:
        real = (folder / place).resolve(strict=True)
        if not real.is_relative_to(folder):
            raise SkillNotFound(f"{file!r:.80} leads outside the skill {skill.name}")
        return _text(real, limits)
    except UnicodeDecodeError:
        return f"[{file} is not text: {real.stat().st_size:,} bytes at {real}]"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SkillNotFound(f"cannot show {file!r:.80} of the skill {skill.name}: {reason}") from error


def _text(path: Path, limits: Limits) -> str:
    """The text of a regular file of allowed size; ValueError gives the reason against any other."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a file")
    if status.st_size > limits.skill_file_bytes:
        raise ValueError(f"it is larger than {limits.skill_file_bytes:,} bytes")
    content = path.read_bytes()
    if b"\0" in content:
        raise UnicodeDecodeError("utf-8", content, 0, 1, "it is not text")
    return content.decode()


def _files(folder: Path, most: int) -> Iterator[str]:
    """Relative paths of the files in the folder; links are not followed."""
    listed = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if name.startswith("."):
                continue
            if listed == most:
                return
            listed += 1
            yield (Path(parent) / name).relative_to(folder).as_posix()
