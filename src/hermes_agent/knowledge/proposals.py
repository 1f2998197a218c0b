"""Changes of skills and memory that a model proposes and a person decides about; nothing is written without a yes.

A proposal is the new text of one file, shown as a difference. Skills are read in everybody's prompt, so an owner or
admin decides about them; about a memory its own person decides. An accepted change can be undone as long as the file is
still as it was made. Files are opened by descriptor, never through a link out of their folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_agent.approvals import text as approval_text
from hermes_agent.knowledge import skills
from hermes_agent.knowledge.memory import MemoryStore
from hermes_agent.text import brief, fenced
from hermes_agent.tools import descriptors
from hermes_config.errors import HermesError, UsageError
from hermes_config.home import advice, locked
from hermes_state.conversations import origins

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.ids import ConversationId, PersonId
    from hermes_state.people.people import Person
    from hermes_state.people.proposals import Proposal

Choice = Literal["accept", "refuse", "edit", "undo"]
CHOICES: tuple[Choice, ...] = ("accept", "refuse", "edit", "undo")
_STATES: dict[str, Literal["accepted", "refused", "undone"]] = {
    "accept": "accepted", "edit": "accepted", "refuse": "refused", "undo": "undone",
}  # fmt: skip
_LOCK_SECONDS = 30.0
_CARD_CHARS = 12_000
"""The longest difference that a card shows."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FOLDERS = ("references", "templates", "scripts", "assets")
_DONE = {
    "accepted": "Done: {what} is as proposed. New conversations see it. Undo: {undo}.",
    "refused": "Refused: nothing is changed.",
    "undone": "Undone: {what} is as it was.",
    "outdated": "Nothing is changed: {what} was changed by somebody else since it was proposed.",
}


class ProposalRefused(HermesError):
    """The change cannot be proposed or made."""


# -- making them -----------------------------------------------------------------------------------------------


def skill_path(name: str, *, category: str = "", file: str = skills.MAIN, anywhere: bool = False) -> str:
    """The path of a skill's file below `<home>/skills`. Raises `ProposalRefused`.

    `anywhere`: the file may be outside the folders that a model may write to.
    """
    parts = [*([category] if category else []), name, *file.split("/")]
    if not all(_NAME.fullmatch(part) for part in parts) or len(parts) > 6:
        raise ProposalRefused(
            f"{'/'.join(parts)!r:.100} is not a valid file name of a skill", hint="Use letters, digits, dots, - and _."
        )
    if not anywhere and file != skills.MAIN and file.split("/", maxsplit=1)[0] not in _FOLDERS:
        raise ProposalRefused(f"{file!r:.60} is not a valid folder of a skill", hint=f"One of {', '.join(_FOLDERS)}.")
    return "/".join(parts)


def propose_skill(
    db: SessionDB,
    config: Config,
    path: str,
    after: str | None,
    *,
    why: str,
    person_id: PersonId,
    conversation_id: ConversationId | None = None,
    origin: str | None = None,
    shown: bool = False,
) -> Proposal:
    """Propose the new text of a skill's file; None removes it. Raises `ProposalRefused`. `shown`: it needs no card."""
    before = read_skill(config, path)
    if after is not None:
        _check_skill(config, path, after)
    if before == after:
        raise ProposalRefused("that would change nothing" if after is not None else "there is no such file")
    return db.proposals.add(
        "skill", path, before=before, after=after, why=why, person_id=person_id, conversation_id=conversation_id,
        origin=origin, shown=shown,
    )  # fmt: skip


def _check_skill(config: Config, path: str, text: str) -> None:
    if len(text.encode()) > config.limits.skill_file_bytes:
        raise ProposalRefused(f"a file of a skill has at most {config.limits.skill_file_bytes:,} bytes")
    if path.endswith(f"/{skills.MAIN}") and (wrong := skills.problem_of(text)):
        raise ProposalRefused(f"that is no {skills.MAIN}: {wrong}")


# -- deciding --------------------------------------------------------------------------------------------------


def may_decide(proposal: Proposal, person: Person) -> bool:
    if proposal.kind == "memory":
        return proposal.person_id == person.id
    return person.role in ("owner", "admin")


def decide(
    db: SessionDB,
    config: Config,
    proposal_id: str,
    choice: Choice,
    person: Person,
    *,
    text: str = "",
    said: str = "/",
) -> str:
    """Carry out a person's decision; the answer to them. Raises `HermesError`. `said`: begins commands in it."""
    found = db.proposals.get(proposal_id.strip())
    if found is None or not may_decide(found, person):
        raise UsageError(f"there is no proposal {brief(proposal_id, 20)!r} that you could decide about")
    if choice == "edit":
        if not text.strip():
            raise UsageError("an edit needs the new text", hint=f"{said}proposals edit {found.id} TEXT")
        _check_edit(config, found, text)
    wanted = _STATES[choice]
    if found.state != ("accepted" if wanted == "undone" else "open"):
        return f"It was already decided: {found.state} by {found.decided_by or 'somebody'}."
    if choice == "edit":  # stored first, so that a crash leaves no text in the file that no row knows
        db.proposals.reword(found.id, f"{text.rstrip()}\n")
    by = brief(person.display_name or str(person.id), 60)
    done = db.proposals.decide(found.id, wanted, by=by, write=lambda one: _write(config, one))
    assert done is not None, "it was there a moment ago"
    if done.state != wanted and not (done.state == "outdated" and wanted != "undone"):
        if wanted == "undone" and done.state == "accepted":
            return f"Nothing is undone: {subject(done)} was changed since."
        return f"It was already decided: {done.state} by {done.decided_by or 'somebody'}."
    return _DONE[done.state].format(what=subject(done), undo=f"{said}proposals undo {done.id}")


def _check_edit(config: Config, proposal: Proposal, text: str) -> None:
    if proposal.kind == "skill":
        _check_skill(config, proposal.file, text)
        return
    limit = config.memory.user_char_limit if proposal.file == "user" else config.memory.memory_char_limit
    if len(text.strip()) > limit:
        raise ProposalRefused(f"that is {len(text.strip()):,} characters, and this memory holds at most {limit:,}")


def _write(config: Config, proposal: Proposal) -> bool:
    """Make the file fit the decision; False if somebody else changed it."""
    before, after = proposal.before, proposal.after
    if proposal.state == "accepted":
        return _swap(config, proposal, (before, after), after)
    if proposal.state == "undone":
        return _swap(config, proposal, (after, before), before)
    _swap(config, proposal, (after,), before)  # a process that died may have written it already
    return True


def _swap(config: Config, proposal: Proposal, expected: tuple[str | None, ...], text: str | None) -> bool:
    if proposal.kind == "memory":
        store = MemoryStore(config.home, proposal.person_id, settings=config.memory, limits=config.limits)
        return store.swap("user" if proposal.file == "user" else "memory", expected=expected, text=text)
    with locked(_root(config) / ".lock", _LOCK_SECONDS):
        if (now := read_skill(config, proposal.file)) not in expected:
            return False
        if now != text:
            _put(config, proposal.file, text)
    return True


# -- files of skills -------------------------------------------------------------------------------------------


def read_skill(config: Config, path: str) -> str | None:
    """The text of a skill's file; None without one. Raises `ProposalRefused`."""
    folder, _, name = path.rpartition("/")
    try:
        with descriptors.opened(_root(config) / folder) as opened, os.fdopen(opened.open(name), "rb") as file:
            data = file.read(config.limits.skill_file_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    if len(data) > config.limits.skill_file_bytes:
        raise ProposalRefused(f"{path} is larger than {config.limits.skill_file_bytes:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProposalRefused(f"{path} is not text, so it cannot be changed here") from None


def _put(config: Config, path: str, text: str | None) -> None:
    folder, _, name = path.rpartition("/")
    try:
        with descriptors.opened(_root(config) / folder, make=text is not None) as opened:
            if text is None:
                opened.remove(name)
            else:
                opened.write(name, text.encode(), mode=0o600, replace=True)
        if text is None:
            _remove_empty(_root(config), folder)
    except OSError as error:
        raise _unusable(path, error) from error


def _remove_empty(root: Path, folder: str) -> None:
    while folder:
        try:
            (root / folder).rmdir()
        except OSError:  # it holds something else
            return
        folder = folder.rpartition("/")[0]


def _unusable(path: str, error: OSError) -> ProposalRefused:
    return ProposalRefused(f"{path} cannot be read or written: {error.strerror}", hint=advice(error))


def _root(config: Config) -> Path:
    root = config.home / "skills"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(os.path.realpath(root))


# -- for people ------------------------------------------------------------------------------------------------


def subject(proposal: Proposal) -> str:
    if proposal.kind == "memory":
        return "what is known about you" if proposal.file == "user" else "your memory"
    folder, _, name = proposal.file.rpartition("/")
    return (
        f"the skill {folder}" if name == skills.MAIN else f"{name} of the skill {folder.rpartition('/')[0] or folder}"
    )


def line(proposal: Proposal) -> str:
    """One proposal in one line."""
    did = "remove" if proposal.after is None else "add" if proposal.before is None else "change"
    state = "" if proposal.state == "open" else f" ({proposal.state})"
    return f"{proposal.id} {did} {subject(proposal)}{state}: {brief(proposal.why, 100)}"


def difference(proposal: Proposal) -> str:
    """The change as a difference, all of it: a yes is a yes to what was seen."""
    before, after = (None if one is None else one.encode() for one in (proposal.before, proposal.after))
    return approval_text.difference(before, after, whole=True)


def fits_card(proposal: Proposal) -> bool:
    """Whether a card can show the whole change."""
    return len(difference(proposal)) <= _CARD_CHARS


def card(proposal: Proposal) -> str:
    """The text of a proposal's card."""
    source = origins.source_of(proposal.origin)
    read = f"\nBefore it proposed this, it read {brief(source, 120)}." if source else ""
    did = "to remove" if proposal.after is None else "to change" if proposal.before is not None else "to add"
    shown = difference(proposal)
    if len(shown) > _CARD_CHARS:
        rest = f"⟨{len(shown) - _CARD_CHARS:,} more characters: `hermes proposals show {proposal.id}`⟩"
        shown, read = shown[:_CARD_CHARS], f"{read}\nThis is **not all of it**: {rest}"
    return f"**I propose {did} {subject(proposal)}**: {brief(proposal.why, 300)}{read}\n\n{fenced(shown)}"
