"""The demo model's answers: a table of phrases with a small function each, comments on tool results, and answers to the
two questions of Hermes itself (summary, title). A reply is a pure function of the request.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hermes_agent.messages import USE_TOOL
from hermes_agent.models.demo import words


@dataclass(frozen=True, slots=True)
class DemoResult:
    """A tool's result, with its call."""

    name: str
    arguments: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class DemoRequest:
    system: str
    said: tuple[str, ...]
    """The person's messages, oldest first; the last one is to be answered, unless there are results."""
    tools: Mapping[str, frozenset[str]]
    """The offered tools and the parameters each takes."""
    results: tuple[DemoResult, ...]
    """The tool results since the person's last message, if the request ends with them."""
    added: str
    """The person's message added while the tools ran."""

    @property
    def last(self) -> str:
        return self.said[-1] if self.said else ""


@dataclass(frozen=True, slots=True)
class DemoReply:
    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    wait: float = 0.0
    """Seconds before the first byte."""
    pace: float = 1.0
    """Relative to the usual speed; 0 is at once."""
    fault: str = ""
    """A failure somebody asked to see: a status, disconnect, garbage, empty or overflow."""
    fails: int | None = None
    """How many attempts fail; None: all of them."""


def reply(request: DemoRequest) -> DemoReply:
    """The answer to a request."""
    if "<<<CONVERSATION\n" in request.last:
        return DemoReply(_summary(request.last), pace=0)  # nobody reads along
    if not request.tools and len(request.said) == 1 and re.search(r"\btitle\b", request.system[:600], re.IGNORECASE):
        return DemoReply(_title(request.last), pace=0)
    return _after_tools(request) if request.results else _answer(request.last, request)


def _answer(text: str, request: DemoRequest) -> DemoReply:
    """The answer to a message. Notes of Hermes before it, and what a plug-in put behind it, are not the person's."""
    note, words_said = _parted(text)
    if "[Background process " in note:
        return DemoReply(_on_process(note))
    if "[The work that you delegated has ended.]" in note:
        return DemoReply(_on_delegated(DemoResult("", {}, words_said)))
    said = words_said.split("\n\n")[0].strip()[:2_000]
    function, found = _find(said)
    if function is not None and found is not None:
        return function(found, request)
    if job := re.search(r"\[This is your scheduled job “(.*?)”, due", note):
        printed = re.search(r"\[Its script printed:\]\n(.*)\n\[End of its output\.\]", note, re.DOTALL)
        shown = f" Its script printed:{_block(printed[1])}" if printed else ""
        return DemoReply(f"It is time for “{job[1]}”: {said} {words.WHO} A thinking model would do it now.{shown}")
    return DemoReply(words.LOST)


_NOTES = re.compile(
    r"\[Since your last turn here, .*?\nEnd of that\.\]\s*|\[Its script printed:\]\n.*?\n\[End of its output\.\]\s*"
    r"|\[Background process .*|\[[^\n]*\](?:\n\s*|$)",
    re.DOTALL,
)
_CHANGED = re.compile(r"\[The owner changed your answer .*? instead:\]\s*$", re.DOTALL)


def _parted(text: str) -> tuple[str, str]:
    """The notes that Hermes put before a message, and the person's words."""
    rest, at = text.strip(), 0
    while found := _NOTES.match(rest, at):
        at = found.end()
        if _CHANGED.search(found[0]):  # the owner's text follows, and behind it what the person said
            own, _, said = rest[at:].partition("\n\n")
            parts = said.split("\n\n")
            known = next((at for at, part in enumerate(parts) if _find(part)[1]), 0)
            at += len(own) + 2 + sum(len(one) + 2 for one in parts[:known])
    return rest[:at], rest[at:].strip()


def _after_tools(request: DemoRequest) -> DemoReply:
    said = "\n\n".join(_comment(result) for result in request.results)
    if not request.added:
        return DemoReply(said)
    then = _answer(request.added, request)
    return replace(then, text=f"{said}\n\nYou added “{request.added}”. {then.text}")


# -- phrases -------------------------------------------------------------------------------------------------------

_Function = Callable[[re.Match[str], DemoRequest], DemoReply]


def _call(request: DemoRequest, lead: str, name: str, **arguments: Any) -> DemoReply:
    """A call of the tool, with its parameters if it is listed; else a text that names the missing tool."""
    takes = request.tools.get(name)
    if takes is None and USE_TOOL in request.tools:
        return DemoReply(lead, ((USE_TOOL, {"name": name, "arguments": arguments}),))
    if takes is None:
        return DemoReply(f"I would use the tool `{name}` for that, but it is not offered to me here.")
    return DemoReply(lead, ((name, {key: value for key, value in arguments.items() if key in takes}),))


def _what(found: re.Match[str], more: str = "") -> str:
    return (found.groupdict().get("what") or "").strip("\"'`“”„«» " + more)


def _quoted(name: str) -> str:
    return f"{'-- ' if name.startswith('-') else ''}{shlex.quote(name)}" if name else ""


def _uses(lead: str, name: str, **arguments: Any) -> _Function:
    """A phrase that calls a tool. An argument is a value, or a function of the matched phrase."""

    def function(found: re.Match[str], request: DemoRequest) -> DemoReply:
        given = {key: one(found) if callable(one) else one for key, one in arguments.items()}
        return _call(request, lead, name, **given)

    return function


def _when(found: re.Match[str]) -> str:
    return found["when"]


def _fact(found: re.Match[str]) -> str:
    return _what(found).rstrip(".!")


def _listing_command(found: re.Match[str]) -> str:
    folder = "" if _what(found).lower() in ("here", "this", "it") else _what(found)
    return f"ls -1p {_quoted(folder)}".strip()


def _deleting_command(found: re.Match[str]) -> str:
    return f"rm {'' if 'file' in (found['kind'] or '').lower() else '-r '}{_quoted(_what(found))}"


def _remembered(found: re.Match[str]) -> str:
    return f"{_fact(found)[:1].upper()}{_fact(found)[1:]}."


def _tasks(found: re.Match[str]) -> list[dict[str, str]]:
    return [{"goal": f"Say in one sentence what speaks for {one}."} for one in (_what(found), found["other"])]


_list = _uses("I will look.", "terminal", command=_listing_command)
_read = _uses("I will read it.", "read_file", path=_what)
_write = _uses("I will write it.", "write_file", path=_what, content=lambda found: found["text"].strip("\"'`“”") + "\n")
_look = _uses(
    "I will look through the files.", "search_files", target="content",
    pattern=lambda found: re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", _what(found)),
)  # fmt: skip
_run = _uses("As you wish.", "terminal", command=lambda found: found["what"].strip("`"))
_background = _uses("I will start it.", "terminal", command=_what, background=True)
_remind = _uses("I will.", "cronjob", action="add", schedule=_when, reminder=_what)
_schedule = _uses("I will.", "cronjob", action="add", schedule=_when, prompt=_what)
_compare = _uses("I will ask two helpers at once.", "delegate_task", tasks=_tasks)
_delete = _uses("That cannot be undone, so I may have to ask you first.", "terminal", command=_deleting_command)
_remember = _uses(
    "I will note that.", "memory", action="add", content=_remembered,
    target=lambda found: "user" if re.search(r"\b(?:i|i'm|my|me|mine)\b", _fact(found), re.IGNORECASE) else "memory",
)  # fmt: skip
_forget = _uses("I will try to forget it.", "memory", action="remove", target="memory", old_text=_fact)
_search = _uses("I will search.", "session_search", query=lambda found: _what(found, "?!."))
_ask = _uses(
    "Gladly.", "clarify", question="Which do you want to see next?", choices=["the files here", "a story"]
)  # fmt: skip


def _praise(found: re.Match[str], _request: DemoRequest) -> DemoReply:
    return DemoReply(f"One thing speaks for {_what(found)}: somebody asked about it. A scripted helper knows no more.")


def _just_said(_found: re.Match[str], request: DemoRequest) -> DemoReply:
    if len(request.said) < 2:
        return DemoReply("Nothing yet: this is the first message of our conversation that I can see.")
    return DemoReply(f"You just said: “{_parted(request.said[-2])[1]}”")


def _slow(found: re.Match[str], request: DemoRequest) -> DemoReply:
    seconds = min(600.0, float(found["seconds"] or 3))
    rest = found["what"].strip()
    answer = _answer(rest, request) if rest else DemoReply(f"That took {seconds:g} s, as you asked.")
    return replace(answer, wait=seconds)


def _fail(found: re.Match[str], _request: DemoRequest) -> DemoReply:
    often = (found["before"] or found["after"] or "").lower()
    times = {"": None, "once": 1, "twice": 2}[often] if often in ("", "once", "twice") else int(often.split()[0])
    how = "disconnect" if found["what"].lower().startswith("disconn") else found["what"].lower()
    lead = f"It failed {often} with {how}" if often else f"It was to fail with {how}"
    return DemoReply(f"{lead}, as you asked, and this attempt went through.", fault=how, fails=times)


def _sum(found: re.Match[str], _request: DemoRequest) -> DemoReply:
    one, sign, other = float(found["one"]), found["sign"], float(found["other"])
    if sign == "/" and not other:
        return DemoReply("That sum has no value I could say.")
    value = {"+": one + other, "-": one - other, "*": one * other, "/": one / (other or 1)}[sign]
    return DemoReply(f"{found['what']} = {value:.12g}")


def _says(text: str, *, pace: float = 1.0) -> _Function:
    return lambda _found, _request: DemoReply(text, pace=pace)


_END = r"(?:,? please)?\s*[?!.]*$"
_FAULTS = r"[45]\d\d|disconnect\w*|garbage|empty|overflow"
_CHATS = r"(?:chats?|conversations?|history|sessions?)"
_TIMES = r"once|twice|\d{1,2} times"
_FILES = r"(?:the |our |these |all |my )?files"
_NAME = r"[\"'`“].+[\"'`”]|[^\s?!]+?"
_CLOCK = r"(?:at )?(?:\d{1,2}(?:[:.]\d\d)?(?: ?[ap]m)?|noon|midnight)"
_SPAN = r"(?:\d+|an?) ?(?:s|m|h|seconds?|min(?:ute)?s?|hours?|days?|weeks?)\b"
_EVERY = rf"every (?:{_SPAN}|[\w, ]+? {_CLOCK})|daily {_CLOCK}"
_WHEN = rf"in {_SPAN}|(?:today |tomorrow |(?:on )?\w+day )?{_CLOCK}|{_EVERY}"
_NUMBER = r"\d{1,12}(?:\.\d{1,6})?"
_LIST = r"(?:list|show|see|display|what|which)\b.*\b(?:files|folders?|directory)\b"
# In the order in which they are tried, at the beginning of a message, after "please" and its kin.
_PHRASES: tuple[tuple[str, _Function], ...] = (
    (r"(?:hello|hi|hey|good (?:morning|evening))(?:[\s,]+(?:hermes|there|all))?[\s,!.]*$", _says(words.HELLO)),
    (r"be slow\s*(?P<seconds>\d+(?:\.\d+)?)?\s*(?:seconds?|s)?\b[\s,:]*(?:and |then )?(?P<what>.*)", _slow),
    (rf"fail(?: (?P<before>{_TIMES}))?(?: with)?(?: an?)? (?P<what>{_FAULTS})(?: (?P<after>{_TIMES}))?{_END}", _fail),
    (rf"(?:what|who) are you{_END}|help{_END}|what can (?:you|i) (?:do|say)", _says(words.ABOUT)),
    (r"what did i (?:just )?(?:say|ask|write|tell)|what was my last (?:message|question)", _just_said),
    (rf"(?:search|look|find|check)\b[^:]*?\b{_CHATS}\b\s*(?:for|about|with|:)?\s*(?P<what>.+)", _search),
    (r"(?:did we (?:ever )?(?:talk|speak|chat)|what did we say|when did we talk) about (?P<what>.+)", _search),
    (rf"(?:look|search|grep|find)(?: for)? (?P<what>.+?) in {_FILES}{_END}", _look),
    (rf"(?:search|look (?:in|through)|grep) {_FILES} for (?P<what>.+?){_END}", _look),
    (rf"{_LIST}.*\b(?:in|of) (?:the )?(?:folder |directory )?(?P<what>[\w./~-]*[\w/~]){_END}", _list),
    (rf"{_LIST}|what(?:'s| is) (?:in )?here{_END}", _list),
    (rf"(?:list|ls|dir)(?: (?P<what>[\w./~-]*[\w/~]))?{_END}", _list),
    (r"(?:remember|note|keep in mind|don't forget|do not forget)\b(?:\s+that\b)?[\s:,]+(?P<what>.+)", _remember),
    (r"forget\b(?:\s+that\b)?[\s:,]+(?P<what>.+)", _forget),
    (rf"(?:delete|remove|erase)\s+(?:the |my )?(?P<kind>(?:folder|directory|file)\s+)(?P<what>{_NAME}){_END}", _delete),
    (rf"(?:delete|remove|erase)\s+(?:the |my )?(?P<what>{_NAME})(?P<kind>\s+(?:folder|file))?{_END}", _delete),
    (r"(?:tell|read|give)\b.*\b(?:story|tale)\b", _says(words.STORY, pace=0.4)),  # a storyteller speaks more slowly
    (r"ask me\b", _ask),
    (r"(?:run|execute|start)\s+in the background[\s:,]+(?P<what>.+)", _background),
    (rf"(?:run|execute|start)\s+(?P<what>.+?)\s+in the background{_END}", _background),
    (r"(?:run|execute)(?: the command)?\s+(?P<what>.+)", _run),
    (rf"remind (?:me|us) (?P<when>{_WHEN})[\s,:]+(?:to |that |about |of )?(?P<what>.+?){_END}", _remind),
    (rf"remind (?:me|us) (?:to |that |about |of )?(?P<what>.+?) (?P<when>{_WHEN}){_END}", _remind),
    (rf"(?P<when>{_EVERY})[\s,:]+(?P<what>.+)", _schedule),
    (rf"compare (?P<what>.+?) (?:and|with|to) (?P<other>.+?)(?: in parallel)?{_END}", _compare),
    (rf"say in one sentence what speaks for (?P<what>.+?){_END}", _praise),
    (rf"(?:write|put|save)\s+(?P<text>.+?)\s+(?:to|into|in)\s+(?:the file )?(?P<what>{_NAME}){_END}", _write),
    (rf"(?:read|open|cat)\s+(?:me )?(?:the file )?(?P<what>{_NAME}){_END}", _read),
    (rf"show\s+(?:me )?(?:the file )?(?P<what>[^\s?!]+\.\w+){_END}", _read),
    (rf"(?:what(?:'s| is) )?(?P<what>(?P<one>{_NUMBER}) ?(?P<sign>[-+*/]) ?(?P<other>{_NUMBER})){_END}", _sum),
    (r"(?:thanks?|thank you)\b", _says("You are welcome. (That line was scripted, too.)")),
)  # fmt: skip


def _find(said: str) -> tuple[_Function, re.Match[str]] | tuple[None, None]:
    for pattern, function in _PHRASES:
        if found := re.match(rf"(?:(?:please|can you|could you|now)[,\s]+)*(?:{pattern})", said, re.IGNORECASE):
            return function, found
    return None, None


# -- comments on results -------------------------------------------------------------------------------------------


def _comment(result: DemoResult) -> str:
    """The answer to one tool result."""
    if "its outcome is unknown" in result.text:
        return (
            "I was lost in the middle of that, and nobody knows whether it happened. I will not simply do it again."
            " Have a look (“list the files here”) and tell me."
        )
    if result.text.startswith("The command was not run: "):
        text = result.text.partition(": ")[2].strip().removeprefix("it was not approved: ")
        why = re.split(r"[.;] (?:do not|It needs)\b", text, maxsplit=1, flags=re.IGNORECASE)[0].rstrip(".")
        return f"All right, I left it alone: {why.replace('the person said no', 'you said no')}. Nothing was changed."
    return _COMMENTS.get(result.name, _on_other)(result)


def _on_terminal(result: DemoResult) -> str:
    command = str(result.arguments.get("command", ""))
    if runs := re.search(r"^\[(runs in the background as .*)\]$", result.text, re.MULTILINE):
        return f"`{command}` {runs[1]} `/processes` lists what runs."
    ending = re.search(
        r"^\[(exit code (\d+)|killed[^\]]*|stopped[^\]]*|interrupted[^\]]*)\]$", result.text, re.MULTILINE
    )
    output = (result.text.replace(ending[0], "") if ending else result.text).strip()
    output = "" if output == "(no output)" else output
    if ending and ending[2] is None:
        return f"`{command}` did not come to its end: {ending[1]}." + _block(output)
    if ending and ending[2] != "0":
        return f"`{command}` ended with {ending[1]}." + _block(output)
    if command.startswith("ls "):
        folder = command.split(" ", 2)[2] if command.count(" ") > 1 else ""
        return _listing(output.splitlines(), where=f"in {folder}" if folder else "here")
    if command.startswith("rm "):
        return f"Done: `{command}` ran and had nothing to complain about. It is gone."
    return f"`{command}` ran." + (_block(output) or " It printed nothing.")


def _listing(names: list[str], *, where: str) -> str:
    """A folder's entries, counted and named, with a suggestion for the next message."""
    names = [name.strip() for name in names if name.strip() and not name.startswith("[")]
    folders = [name for name in names if name.endswith("/")]
    files = [name for name in names if not name.endswith("/")]
    if not names:
        return f"There is nothing {where}: the folder is empty."
    groups = [(group, word) for group, word in ((folders, "folder"), (files, "file")) if group]
    counted = " and ".join(f"{len(group)} {word}{'' if len(group) == 1 else 's'}" for group, word in groups)
    lines = [f"I looked: {counted} {where}."]
    for group, word in groups:
        more = f" … and {len(group) - 8} more" if len(group) > 8 else ""
        lines.append(f"- {word.capitalize()}s: {', '.join(f'`{name}`' for name in group[:8])}{more}")
    if "old/" in folders:
        lines.append("\nThere is a folder `old/`. Say “delete the folder old” to see how I have to ask first.")
    elif readable := next((name for name in files if name.lower().endswith((".md", ".txt"))), None):
        lines.append(f"\nSay “read {readable}” and I will.")
    return "\n".join(lines)


def _on_read_file(result: DemoResult) -> str:
    path = result.arguments.get("path", "the file")
    if result.text.endswith(" is empty."):
        return f"`{path}` is there, and it is empty."
    lines = re.sub(r"^ *\d+\|", "", result.text, flags=re.MULTILINE).splitlines()
    if "\n".join(lines) == result.text:  # no line has a number: it is an error
        return f"I could not show you `{path}`: {result.text.removeprefix('read_file: ')}"
    total = re.search(r"^\[lines .* of ([\d,]+);", result.text, re.MULTILINE)
    size = f"{total[1]} lines" if total else f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
    return f"`{path}` has {size}. It begins:" + _block("\n".join(lines))


def _on_memory(result: DemoResult) -> str:
    content = str(result.arguments.get("content") or result.arguments.get("old_text") or "")
    if not result.text.startswith("Done."):
        return f"I could not change my memory: {result.text.splitlines()[0]}"
    if result.arguments.get("action") == "remove":
        return f"Forgotten: {content}"
    return f"I will remember: {content.rstrip('.')}. From the next conversation on I know it without looking."


def _on_session_search(result: DemoResult) -> str:
    query = result.arguments.get("query", "")
    found = re.findall(r"^(\S+ \S+) · (.*) · (\w+) · session_id \S+, message \d+\n  (.*)$", result.text, re.MULTILINE)
    if not found and not result.text.startswith("Nothing about"):
        return "This is what I found:" + _block(result.text)
    hits = [hit for hit in found if not _is_search(hit[3])]
    if not hits:
        return f"I searched our chats for “{query}” and found nothing" + (" but this very question." if found else ".")
    chats = len({title for _when, title, _role, _snippet in hits})
    where = "one chat" if chats == 1 else f"{chats} chats"
    lines = [f"I searched our chats for “{query}”: {len(hits)} message{'' if len(hits) == 1 else 's'} in {where}."]
    who = {"user": "you", "assistant": "I"}
    for when, title, role, snippet in hits[:5]:
        marked = snippet.replace(">>>", "**").replace("<<<", "**")
        lines.append(f"- {title}, {when} ({who.get(role, role)}): {marked}")
    return "\n".join(lines)


def _on_cronjob(result: DemoResult) -> str:
    done, _, what = result.text.partition("Added: ")
    return f"Done: {what} `/cron` lists them." if what and not done else f"That did not work: {result.text}"


def _on_delegated(result: DemoResult) -> str:
    """The children's reports, after one sentence about all of them."""
    found = re.findall(r"^## \d+\. (.*)\n(.*)", result.text, re.MULTILINE)
    if not found:
        return "The delegated work has ended:" + _block(result.text)
    about = [re.sub(r"^Say in one sentence what speaks for |\.$", "", goal) for goal, _said in found]
    head = f"The helpers are back with a sentence about {' and one about '.join(about)}; the choice is yours."
    return "\n".join([head, "", *(f"- {said}" for _goal, said in found)])


def _on_process(note: str) -> str:
    found = re.search(r"\[Background process (\S+): (.*)\]\nCommand: (.*)\n?((?:.*\n?)*)", note)
    if found is None:
        return "A background process has ended."
    name, how, command, output = found.groups()
    shown = re.sub(r"^(?:Output|The end of its output) \(.*\):\n", "", output)
    printed = " It printed nothing." if shown.startswith("It printed nothing.") else _block(shown)
    return f"`{command}`, which ran in the background as {name}, has ended: {how}{printed}"


def _is_search(snippet: str) -> bool:
    """Whether a hit is itself a search question."""
    plain = snippet.replace(">>>", "").replace("<<<", "")
    return "session_search" in plain or _find(plain)[0] is _search


def _on_other(result: DemoResult) -> str:
    name = f"`{result.name}`" if result.name else "The tool"
    return f"{name} answered:" + _block(result.text) if result.text.strip() else f"{name} answered with nothing."


def _block(text: str) -> str:
    """An output as a block, cut when it is long."""
    lines = text.strip("\n").splitlines()
    if not lines:
        return ""
    if len(lines) > 20:
        lines = [*lines[:20], f"… {len(lines) - 20} more lines"]
    fence = "````" if "```" in text else "```"
    return f"\n\n{fence}\n" + "\n".join(line[:200] for line in lines) + f"\n{fence}"


_COMMENTS: dict[str, Callable[[DemoResult], str]] = {
    "terminal": _on_terminal, "read_file": _on_read_file, "memory": _on_memory, "session_search": _on_session_search,
    "cronjob": _on_cronjob, "delegate_task": _on_delegated,
}  # fmt: skip


# -- questions of Hermes itself: summary and title -----------------------------------------------------------------


def _summary(question: str) -> str:
    """A summary from the person's first and last request and an earlier summary."""
    found = re.search(r"<<<CONVERSATION\n(.*)\nCONVERSATION>>>", question, re.DOTALL)
    before = re.search(r"<<<SUMMARY\n(.*)\nSUMMARY>>>", question, re.DOTALL)
    source = found[1] if found else question
    asks = [" ".join(text.split()) for text in re.findall(r"^PERSON: ?(.*)", source, re.MULTILINE)] or [source]
    earlier = [line.lstrip("-* ") for line in (before[1] if before else "").splitlines() if not line.startswith("#")]
    asked = re.search(r"about (\d+) tokens", question)
    room = min(int(asked[1]) * 3 if asked else 4_000, max(200, len(source) // 2))
    context = [line for line in (*earlier[:8], *asks[1:-1][-8:]) if line.strip()]
    width = max(20, min(160, room // (len(context) + 3) - 12))

    def lines(*texts: str) -> str:
        return "\n".join(f"- {text[:width]}" for text in texts)

    parts = [f"## Goal\n{lines(asks[0])}", f"## Pending asks\n{lines(asks[-1])}"]
    if context:
        parts.append(f"## Critical context\n{lines(*context)}")
    return "\n\n".join(parts)


def _title(question: str) -> str:
    """Up to six words of the person's first message."""
    spoken = re.search(r"^PERSON: ?(.*)", question, re.MULTILINE)
    line = (spoken[1] if spoken else question).strip(" \n\"'“”`").split("\n")[0]
    line = re.sub(r"^(?:please|can you|could you|hello|hi)[,\s]+", "", line, flags=re.IGNORECASE)
    plain = re.sub(r"[\"“”`#]|\*\*|(?<!\w)_|_(?!\w)", "", line).split()  # marks of emphasis; 6*7 and a_name stay
    short = " ".join(plain[:6])[:48].rstrip(" ,;:.!?-–—。！？、")
    return short[:1].upper() + short[1:] if short else "A conversation with the demo model"
