"""What the demo model says about a tool's result. It only ever speaks of what the result holds."""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes_agent.models import demo_phrases
from hermes_agent.models.demo_request import Result

_NOT_RUN = "The command was not run: "
_EXIT = re.compile(r"^\[(exit code (\d+)|killed[^\]]*|stopped[^\]]*|interrupted[^\]]*)\]$", re.MULTILINE)
_HIT = re.compile(r"^(\S+ \S+) · (.*) · (\w+) · session_id (\S+), message \d+\n  (.*)$", re.MULTILINE)
_NUMBERED = re.compile(r"^ *\d+\|", re.MULTILINE)
_LINES = 20
_NAMES = 8


def comment(result: Result) -> str:
    """One answer to one result."""
    if "its outcome is unknown" in result.text:
        return (
            "I was lost in the middle of that, and nobody knows whether it happened. I will not simply do it again."
            " Have a look (“list the files here”) and tell me."
        )
    if result.text.startswith(_NOT_RUN):
        return f"All right, I left it alone: {_reason(result.text.removeprefix(_NOT_RUN))}. Nothing was changed."
    return _COMMENTS.get(result.name, _other)(result)


def _reason(text: str) -> str:
    """Why something was not allowed, without what only a model needs to be told."""
    why = re.split(r"[.;] (?:do not|It needs)\b", text.strip(), maxsplit=1, flags=re.IGNORECASE)[0]
    why = why.removeprefix("it was not approved: ").rstrip(".")
    return why.replace("the person said no", "you said no")


def _terminal(result: Result) -> str:
    command = str(result.arguments.get("command", ""))
    ending = _EXIT.search(result.text)
    output = _EXIT.sub("", result.text).strip()
    output = "" if output == "(no output)" else output
    if ending and ending[2] is None:
        return f"`{command}` did not come to its end: {ending[1]}." + _shown(output)
    failed = ending is not None and ending[2] != "0"
    if command.startswith("ls ") and not failed:
        return listing(output.splitlines(), where=_where(command))
    if command.startswith("rm ") and not failed:
        return f"Done: `{command}` ran and had nothing to complain about. It is gone."
    if failed:
        return f"`{command}` ended with {ending[1] if ending else 'an error'}." + _shown(output)
    return f"`{command}` ran." + (_shown(output) or " It printed nothing.")


def _where(command: str) -> str:
    folder = command.split(" ", 2)[2] if command.count(" ") > 1 else ""
    return f"in {folder}" if folder else "here"


def listing(names: list[str], *, where: str) -> str:
    """What is in a folder: counted, named, and what could be done next."""
    names = [name.strip() for name in names if name.strip() and not name.startswith("[")]
    folders = [name for name in names if name.endswith("/")]
    files = [name for name in names if not name.endswith("/")]
    if not names or names == ["Nothing was found."]:
        return f"There is nothing {where}: the folder is empty."
    counted = " and ".join(
        f"{len(group)} {word if len(group) == 1 else word + 's'}"
        for group, word in ((folders, "folder"), (files, "file"))
        if group
    )
    lines = [f"I looked: {counted} {where}."]
    for group, word in ((folders, "Folders"), (files, "Files")):
        if group:
            more = f" … and {len(group) - _NAMES} more" if len(group) > _NAMES else ""
            lines.append(f"- {word}: {', '.join(f'`{name}`' for name in group[:_NAMES])}{more}")
    if "old/" in folders:
        lines.append("\nThere is a folder `old/`. Say “delete the folder old” to see how I have to ask first.")
    elif readable := next((name for name in files if name.lower().endswith((".md", ".txt"))), None):
        lines.append(f"\nSay “read {readable}” and I will.")
    return "\n".join(lines)


def _search_files(result: Result) -> str:
    if result.arguments.get("target") == "files":
        return listing(result.text.splitlines(), where="here, with all that is below it")
    pattern = result.arguments.get("pattern", "")
    if "Nothing was found." in result.text:
        return f"I looked through the files and did not find “{pattern}”."
    return f"I found “{pattern}”:" + _shown(result.text)


def _read_file(result: Result) -> str:
    path = result.arguments.get("path", "the file")
    if result.text.endswith(" is empty."):
        return f"`{path}` is there, and it is empty."
    if not _NUMBERED.search(result.text):
        return f"I could not show you `{path}`: {result.text.removeprefix('read_file: ')}"
    lines = _NUMBERED.sub("", result.text).splitlines()
    count = len(lines)
    total = re.search(r"^\[lines .* of ([\d,]+);", result.text, re.MULTILINE)
    size = f"{total[1]} lines" if total else f"{count} line{'' if count == 1 else 's'}"
    return f"`{path}` has {size}. It begins:" + _shown("\n".join(lines))


def _write_file(result: Result) -> str:
    done = re.search(r" (?:created|written|overwritten|replaced|updated)\b", result.text)
    return f"{'Done' if done else 'That did not work'}: {' '.join(result.text.split())[:300]}"


def _memory(result: Result) -> str:
    content = str(result.arguments.get("content") or result.arguments.get("old_text") or "")
    if not result.text.startswith("Done."):
        return f"I could not change my memory: {result.text.splitlines()[0]}"
    if result.arguments.get("action") == "remove":
        return f"Forgotten: {content}"
    return f"I will remember: {content.rstrip('.')}. From the next conversation on I know it without looking."


def _session_search(result: Result) -> str:
    query = result.arguments.get("query", "")
    found = _HIT.findall(result.text)
    if not found and not result.text.startswith("Nothing about"):
        return "This is what I found:" + _shown(result.text)
    hits = [hit for hit in found if not _is_search(hit[4])]
    if not hits:
        return f"I searched our chats for “{query}” and found nothing" + (" but this very question." if found else ".")
    chats = list(dict.fromkeys(title for _when, title, _role, _session, _snippet in hits))
    where = "one chat" if len(chats) == 1 else f"{len(chats)} chats"
    lines = [f"I searched our chats for “{query}”: {len(hits)} message{'' if len(hits) == 1 else 's'} in {where}."]
    who = {"user": "you", "assistant": "I"}
    for when, title, role, _session, snippet in hits[:5]:
        marked = snippet.replace(">>>", "**").replace("<<<", "**")
        lines.append(f"- {title}, {when} ({who.get(role, role)}): {marked}")
    return "\n".join(lines)


def _is_search(snippet: str) -> bool:
    """Whether a hit is somebody looking for the words, and not what they were looking for."""
    words = snippet.replace(">>>", "").replace("<<<", "")
    meant = demo_phrases.find(words)
    return "session_search" in words or (meant is not None and meant[0] == "search")


def _clarify(result: Result) -> str:
    return f"Noted: {' '.join(result.text.split())[:300]}"


def _other(result: Result) -> str:
    said = result.text.strip()
    name = f"`{result.name}`" if result.name else "The tool"
    return f"{name} answered:" + _shown(said) if said else f"{name} answered with nothing."


def _shown(text: str) -> str:
    """An output as a block, its middle left out when it is long."""
    lines = text.strip("\n").splitlines()
    if not lines:
        return ""
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"… {len(lines) - _LINES} more lines"]
    fence = "````" if "```" in text else "```"
    return f"\n\n{fence}\n" + "\n".join(line[:200] for line in lines) + f"\n{fence}"


_COMMENTS: dict[str, Callable[[Result], str]] = {
    "terminal": _terminal,
    "search_files": _search_files,
    "read_file": _read_file,
    "write_file": _write_file,
    "memory": _memory,
    "session_search": _session_search,
    "clarify": _clarify,
}
