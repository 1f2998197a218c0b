"""`hermes skills` and `hermes proposals`: list, install and undo skills; decide about proposed changes."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_cli import plugins
from hermes_cli.framework import output, prompts, store, text
from hermes_cli.framework.output import CommandAnswer
from hermes_cli.framework.parser import Parser, Verbs, with_store
from hermes_config import config
from hermes_config.errors import UsageError
from hermes_config.home import private_open

if TYPE_CHECKING:
    from hermes_agent.knowledge.skill_source import FoundSkill
    from hermes_agent.knowledge.skills import Skills
    from hermes_state import SessionDB
    from hermes_state.people.proposals import Proposal

_SKILL_COLUMNS = output.columns("Skill", "Category", "What for…")
_COLUMNS = output.columns("Proposal", "State", "Made", "What…")


def register_skills(parser: Parser) -> None:
    parser.set_defaults(run=_list, json=False)
    verbs = Verbs(parser)
    verbs.add("list", _list, "list the skills", json=True)
    show = verbs.add("show", _show, "show the instructions of a skill", "deploy")
    show.add_argument("name", metavar="NAME", help="as hermes skills list shows it")
    show.add_argument("file", nargs="?", metavar="FILE", help="another file of the skill")
    install = verbs.add(
        "install", _install, "install skills from a folder or a pinned git commit; shows the difference and asks",
        "~/Downloads/deploy", "https://example.org/skills.git@0123456789012345678901234567890123456789 --within deploy",
        json=True, yes=True,
    )  # fmt: skip
    install.add_argument("source", metavar="SOURCE", help="a folder, or URL@COMMIT with the whole commit id")
    install.add_argument("--within", default="", metavar="FOLDER", help="a folder of the source")
    install.add_argument("--category", default="", metavar="NAME", help="the folder in skills/ that they get")
    undo = verbs.add("undo", _undo, "undo the last change of a skill", "deploy", json=True, db=True)
    undo.add_argument("name", metavar="NAME", help="as hermes skills list shows it, or of a removed one")


def register_proposals(parser: Parser) -> None:
    parser.set_defaults(run=with_store(_proposals), json=False, all=False)
    verbs = Verbs(parser)
    listed = verbs.add(
        "list", _proposals, "list proposals that wait for your decision", "", "--all", json=True, db=True
    )
    listed.add_argument("--all", action="store_true", help="also show decided proposals")
    for name, what in (
        ("show", "show a proposal and the changes it makes"), ("accept", "make the proposed change"),
        ("refuse", "reject a proposal; nothing changes"),
        ("edit", "change the proposed text in $EDITOR, then accept it"), ("undo", "undo an accepted change"),
    ):  # fmt: skip
        verb = verbs.add(name, _show_proposal if name == "show" else _decide, what, "p1a2b3c4d", json=True, db=True)
        verb.add_argument("proposal", metavar="ID", help="as hermes proposals list shows it")
        verb.set_defaults(choice=name)


def _found() -> Skills:
    from hermes_agent.knowledge import skills

    loaded = config.load()  # first, so that a broken configuration is reported once, not by the plug-ins as well
    plugins.discover_plugins()
    return skills.discover(loaded, platform="cli")


def _list(args: argparse.Namespace) -> CommandAnswer:
    found = _found()
    parts = []
    if found.skills:
        cells = [(skill.name, skill.category, skill.description) for skill in found.skills]
        parts.append(output.table(_SKILL_COLUMNS, cells))
    if found.problems:
        parts.append("\n".join(map(text.harmless, found.problems)))
    nothing = f"There are no skills. They are folders with a SKILL.md in {config.load().home / 'skills'}."
    rows = [{**asdict(skill), "folder": str(skill.folder)} for skill in found.skills]
    return CommandAnswer({"skills": rows, "problems": found.problems}, drawn="\n\n".join(parts) or nothing)


def _show(args: argparse.Namespace) -> CommandAnswer:
    viewed = _found().view(args.name, args.file, listed_by="hermes skills list")
    more = f"\n\nBeside it: {', '.join(map(text.harmless, viewed.files))}" if viewed.files else ""
    return CommandAnswer(None, drawn=f"{text.harmless_block(viewed.content).rstrip()}{more}")


# -- install and undo ------------------------------------------------------------------------------------------


def _install(args: argparse.Namespace) -> CommandAnswer:
    from hermes_agent.knowledge import skill_source

    with (
        skill_source.opened(args.source, config.load(), within=args.within) as found,
        store.open_store(create=True) as db,
    ):
        return _installed(args, db, found)


def _installed(args: argparse.Namespace, db: SessionDB, found: list[FoundSkill]) -> CommandAnswer:
    from hermes_agent.knowledge import proposals

    loaded = config.load()
    made = [one for skill in found for one in _proposed(db, loaded, skill, args)]
    if not made:
        return CommandAnswer({"installed": []}, "Nothing to do: it is installed already, exactly so.")
    for one in made:
        print(text.harmless_block(f"{one.file}\n{proposals.difference(one)}\n"))
    for skill in found:
        for path in skill.left_out:
            print(text.harmless(f"left out (not text, too large, or a link): {skill.name}/{path}"))
    owner = db.people.owner()
    try:
        prompts.confirm("Install this? The model will follow it.", yes=args.yes)
    except BaseException:
        for one in made:
            proposals.decide(db, loaded, one.id, "refuse", owner, said="hermes ")
        raise
    for one in made:
        said = proposals.decide(db, loaded, one.id, "accept", owner, said="hermes ")
        if (now := db.proposals.get(one.id)) is None or now.state != "accepted":
            raise UsageError(f"{one.file} was not installed: {said}", hint="The files before it were.")
    names = sorted({skill.name for skill in found})
    said = f"Installed: {', '.join(names)}. hermes skills undo NAME takes it back."
    return CommandAnswer({"installed": names, "files": [one.file for one in made]}, said)


def _proposed(db: SessionDB, loaded: config.Config, skill: FoundSkill, args: argparse.Namespace) -> list[Proposal]:
    from hermes_agent.knowledge import proposals

    found = []
    for file, content in skill.files.items():
        path = proposals.skill_path(skill.name, category=args.category, file=file, anywhere=True)
        if proposals.read_skill(loaded, path) != content:
            why = f"installed from {args.source}"
            found.append(
                proposals.propose_skill(db, loaded, path, content, why=why, person_id=db.people.owner().id, shown=True)
            )  # fmt: skip
    return found


def _undo(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from hermes_agent.knowledge import proposals

    loaded, known = config.load(), db.proposals.list(state="accepted", limit=1_000)
    changes = sorted(
        (one for one in known if one.kind == "skill" and _is_of(one.file, args.name, known, loaded.home / "skills")),
        key=lambda one: one.decided_at or 0.0, reverse=True,
    )  # fmt: skip
    if not changes:
        hint = "hermes proposals list --all shows all changes."
        raise UsageError(f"no change of the skill {args.name!r:.60} is on record", hint=hint)
    last = [one for one in changes if one.why == changes[0].why and abs(changes[0].made_at - one.made_at) < 60]
    owner = db.people.owner()
    said = [proposals.decide(db, loaded, one.id, "undo", owner, said="hermes ") for one in last]
    return CommandAnswer({"undone": [one.file for one in last]}, *dict.fromkeys(said))


def _is_of(file: str, name: str, known: Sequence[Proposal], root: Path) -> bool:
    """Whether a file belongs to a skill: `NAME`, `CATEGORY/NAME`, or its folder, which has or had a SKILL.md."""
    parts, mains = file.split("/"), {one.file for one in known}
    folders = ["/".join(parts[:deep]) for deep in (1, 2) if len(parts) > deep]
    folder = next((one for one in folders if f"{one}/SKILL.md" in mains or (root / one / "SKILL.md").is_file()), "")
    return bool(folder) and name in (folder, folder.rpartition("/")[2])


# -- proposals -------------------------------------------------------------------------------------------------


def _proposals(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from hermes_agent.knowledge import proposals

    rows = db.proposals.list(state="" if args.all else "open", limit=1_000)
    cells = [(one.id, one.state, text.when(one.made_at), proposals.line(one).partition(" ")[2]) for one in rows]
    nothing = "Nothing is proposed." if args.all else "Nothing waits for your yes."
    return CommandAnswer([asdict(one) for one in rows], drawn=output.table(_COLUMNS, cells) if rows else nothing)


def _wanted(args: argparse.Namespace, db: SessionDB) -> Proposal:
    found = db.proposals.get(args.proposal)
    if found is None:
        raise UsageError(f"there is no proposal {args.proposal!r:.40}", hint="hermes proposals list shows them.")
    return found


def _show_proposal(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from hermes_agent.knowledge import proposals

    found = _wanted(args, db)
    drawn = text.harmless_block(f"{proposals.line(found)}\n\n{proposals.difference(found)}")
    return CommandAnswer(asdict(found), drawn=drawn)


def _decide(args: argparse.Namespace, db: SessionDB) -> CommandAnswer:
    from hermes_agent.knowledge import proposals

    found, written = _wanted(args, db), ""
    choice: Any = args.choice
    if choice == "edit":
        with tempfile.TemporaryDirectory(prefix="hermes-proposal-") as folder:
            draft = Path(folder) / Path(found.file).name
            with private_open(draft, "wb") as file:
                file.write((found.after or "").encode())
            prompts.open_editor(draft, instead="answer with /proposals edit in a chat")
            written = draft.read_text("utf-8", "replace")
    owner = db.people.owner()
    # Who sits at this machine decides about everybody's: they could edit the files as well.
    whose = db.people.get(found.person_id) if found.kind == "memory" else owner
    said = proposals.decide(db, config.load(), found.id, choice, whose or owner, text=written, said="hermes ")
    now = db.proposals.get(found.id)
    return CommandAnswer({"id": found.id, "state": None if now is None else now.state}, said)
