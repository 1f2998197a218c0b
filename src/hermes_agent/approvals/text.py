"""The text of a permission question, the same on every surface.

The command is shown exactly; characters that a screen would hide or reorder, letters that only look like ASCII ones,
and long gaps are named instead: nobody can agree to what they cannot see. A write is shown as a bounded difference.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from hermes_agent.approvals.types import Choice

if TYPE_CHECKING:
    from hermes_agent.approvals.types import ApprovalQuestion
    from hermes_agent.execution.base import SandboxKind


_HEADINGS = {
    "command": "Hermes wants to run a command",
    "write": "Hermes wants to write a file",
    "read": "Hermes wants to read a file",
    "network": "Hermes wants to reach the network",
    "plugin": "Hermes wants to use a tool of a plug-in",
    "mcp": "Hermes wants to use a tool of an MCP server",
    "reach": "Hermes wants to reach something that you have not named",
    "spend": "Hermes wants to make an expensive model call",
}
SAID: Final[dict[Choice, str]] = {
    "task": "allowed for this task",
    "once": "allowed, this once",
    "session": "allowed in this conversation",
    "always": "allowed from now on, also in other conversations of yours",
    "deny": "denied",
}
"""The meaning of each answer, in words."""
_SPANS: dict[Choice, str] = {"task": "for this task", "session": "in this conversation", "always": "always"}
_EXACT = {"command": "this command", "write": "this write", "read": "this file"}

_EMPTY_LINES = 3
_BLANKS = 24
_BEGINNING = 200
_VALUE = 36
_SIZES = 3
_DIFF_LINES = 60
_DIFF_LINE = 200
_COMPARED_BYTES = 200_000
_HASH = 12
# Characters that Python calls printable but no screen shows: fillers, joiners, variation selectors, an empty Braille
# cell. Controls, direction marks and unusual spaces are not printable anyway.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
# Letters of Cyrillic, Greek, Armenian and Latin itself that look like those of ASCII: `сurl` and `./deрloy` name other
# programs. Then signs like / . - : ; ! and the alphabets for mathematics and wide text, which no command needs.
_LIKE_ASCII = frozenset("аеорсухіјѕһԁԛԝѵӏҮүАВЕЅІЈКМНОРСТУХԌҺԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧονιρυχκօսոհցՕՍɡɑǀ")
_LIKE_SIGNS = re.compile(
    "[\u01c3\u037e\u1fef\u2010-\u2012\u2024\u2044\u2212\u2215\u2216\u2236\u29f5\ua789\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
    "\U0001d400-\U0001d7ff]"
)
# Scripts with many such letters.
_LIKE_LATIN = (
    "LATIN LETTER SMALL CAPITAL", "CHEROKEE", "LISU", "COPTIC", "DESERET", "CANADIAN SYLLABICS", "GOTHIC", "OLD ITALIC",
    "OSAGE", "TIFINAGH", "VAI",
)  # fmt: skip
_MARKS = 3
"""Accents that one letter may carry; many of them would paint over the lines around it."""


def heading(kind: str) -> str:
    return _HEADINGS.get(kind, f"Hermes asks for permission ({' '.join(exactly(kind))})")


# -- a command, made visible -----------------------------------------------------------------------------------


def exactly(command: str) -> list[str]:
    """The lines of a command, with the names of invisible characters and the lengths of long gaps."""
    lines: list[str] = []
    empty: list[str] = []
    for line in command.split("\n"):
        if not line.strip(" \t"):
            empty.append(_visible(line))
            continue
        lines += _folded(empty)
        empty = []
        lines.append(_visible(line))
    return lines + _folded(empty)


def _folded(empty: list[str]) -> list[str]:
    return empty if len(empty) <= _EMPTY_LINES else [f"⟨{len(empty):,} empty lines⟩"]


def _visible(line: str) -> str:
    if not line.isascii():
        # A word of such letters alone is a plain word where the line has other letters of its alphabet, too.
        foreign = all(_is_lookalike(letter) for letter in line if letter.isalpha() and not letter.isascii())
        line = "".join(_without_marks(line))
        line = re.sub(r"\w+", lambda word: _without_lookalikes(word[0], always=foreign), line)
        line = _LIKE_SIGNS.sub(lambda sign: _code(sign[0]), line)
    counted = re.sub(rf"[ \t]{{{_BLANKS + 1},}}", lambda gap: f"⟨{len(gap[0]):,} blanks⟩", line)
    return "".join(map(_named, counted))


def _without_lookalikes(word: str, *, always: bool) -> str:
    """The word with the codes of letters that pretend to be others, if it is mixed with ASCII."""
    if not always and not re.search("[A-Za-z]", word):
        return word
    return "".join(_code(letter) if _is_lookalike(letter) else letter for letter in word)


def _is_lookalike(letter: str) -> bool:
    if letter.isascii():
        return False
    if letter in _LIKE_ASCII or unicodedata.name(letter, "").startswith(_LIKE_LATIN):
        return True
    # Forms of ASCII letters: Roman numerals, ligatures, the long s, letters of mathematics.
    kind = unicodedata.decomposition(letter).partition(" ")[0]
    return kind in ("<compat>", "<font>", "<wide>") and unicodedata.normalize("NFKC", letter).isascii()


def _without_marks(line: str) -> Iterable[str]:
    """The line with the codes of marks that strike ASCII characters through, or stand in heaps."""
    before, marks = "", 0
    for character in line:
        if unicodedata.category(character) not in ("Mn", "Me") or _UNSEEN.match(character):
            before, marks = character, 0
            yield character
            continue
        marks += 1
        strange = before.isascii() and len(unicodedata.normalize("NFC", f"{before or ' '}{character}")) > 1
        yield _code(character) if strange or marks > _MARKS else character


def _code(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _named(character: str) -> str:
    if character == "\t":
        return "    "
    seen = character.isprintable() and not _UNSEEN.match(character)
    return character if seen else _code(character)


def beginning(command: str, most: int = _BEGINNING) -> str:
    """The start of a command on one line, for confirmations and for the message with the buttons."""
    line = " ⏎ ".join(exactly(command[: most * 4]))
    return line if len(line) <= most and len(command) <= most * 4 else f"{line[: most - 1]}…"


def measure(command: str) -> str:
    """Length and hash, which distinguish texts that look alike."""
    return f"{len(command):,} characters, hash {short_hash(command.encode('utf-8', 'surrogatepass'))}"


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]


# -- a write, as a difference ----------------------------------------------------------------------------------


def difference(before: bytes | None, after: bytes | None, *, whole: bool = False) -> str:
    """A write as sizes, hashes and a unified difference, with invisible characters named; bounded unless `whole`."""
    facts = f"{_size(before, 'no file')} → {_size(after, 'deleted')}"
    if after is None:
        return facts
    old, new = _lines(before or b""), _lines(after)
    if old is None or new is None:
        return f"{facts}\n⟨not text⟩"
    if len(before or b"") + len(after) <= _COMPARED_BYTES:
        shown = list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]  # without the names of the files
    else:
        shown = [f"+{line}" for line in new]
    if whole:
        return "\n".join([facts, *("".join(exactly(line)) for line in shown)])
    kept = [_cut("".join(exactly(line))) for line in shown[:_DIFF_LINES]]
    left = len(shown) - len(kept)
    return "\n".join([facts, *kept, *([f"⟨{left:,} more lines⟩"] if left else [])])


def _size(data: bytes | None, none: str) -> str:
    return none if data is None else f"{len(data):,} bytes, hash {short_hash(data)}"


def _lines(data: bytes) -> list[str] | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.split("\n")


def _cut(line: str) -> str:
    return line if len(line) <= _DIFF_LINE else f"{line[:_DIFF_LINE]}⟨{len(line) - _DIFF_LINE:,} more characters⟩"


# -- the effect of a yes ---------------------------------------------------------------------------------------


def opens(kind: str, sandbox: SandboxKind, opening: str) -> str:
    """Where the call would run, and which access a yes gives it."""
    if kind == "write":
        return "a yes lets Hermes write outside the workspace" if opening else "it stays in the workspace"
    if kind == "read":
        return "a yes lets Hermes read this file"
    if kind == "spend":
        return ""
    if kind != "command":
        return "none: it runs inside Hermes"
    if sandbox == "host":
        return "none (executor: host): it runs with all your rights"
    if sandbox == "none":
        return "none works on this machine: it runs with all your rights"
    inside = "the executor of a plug-in" if sandbox == "plugin" else sandbox
    if not opening:
        return f"inside {inside}: the workspace only, no network"
    if opening == "outside the sandbox":
        return f"outside {inside}, with all the rights of your account"
    return f"inside {inside}, opened for this: {opening}"


def labels(kind: str, needs: Iterable[Sequence[str]], choices: Iterable[Choice]) -> dict[str, str]:
    """The button text of each answer. Long paths are cut at their start; the card shows them whole."""
    sizes: dict[str, None] = {}
    exact = False
    for need, value in needs:
        end = _end(" ".join(exactly(value)))
        size = {
            "network": "network", "folder": f"writes to {end}", "tool": f"tool {end}",
            "target": _end(value.partition("=")[2]),
        }.get(need)  # fmt: skip
        exact = exact or size is None
        if size is not None:
            sizes.setdefault(size)
    named = list(sizes)[:_SIZES]
    if len(sizes) > _SIZES:
        named.append(f"{len(sizes) - _SIZES} more")
    this = _EXACT.get(kind, "this call")
    what = " and ".join([*named, *([this] if exact or not sizes else [])])
    found = {choice: f"{what[:1].upper()}{what[1:]} {span}" for choice, span in _SPANS.items()}
    return {choice: {**found, "once": f"{this.capitalize()} once", "deny": "Deny"}[choice] for choice in choices}


def _end(value: str) -> str:
    line = " ".join(exactly(value))
    return line if len(line) <= _VALUE else f"…{line[1 - _VALUE :]}"


def confirmed(choice: Choice, command: str, *, bound: str = "") -> str:
    """The confirmation of an answer; it repeats the command. `bound`: "3 times", "until 18:00"."""
    said = SAID[choice].capitalize()
    return f"{said}{f', {bound}' if bound else ''}: {beginning(command)}"


def facts(question: ApprovalQuestion, *, whom: str) -> list[tuple[str, str]]:
    """The (name, value) lines below the command, without empty ones: each is one line, whatever names it holds."""
    every = [
        ("what", question.detail), ("where", question.workdir), ("for", whom), ("why", question.why),
        ("sandbox", question.sandbox), ("expires", f"in {wait(question.seconds)}; then it is denied"),
    ]  # fmt: skip
    return [(name, in_line(value)) for name, value in every if value]


def in_line(value: str) -> str:
    """A value on one line; a folder's name can hold line breaks, and pretend to be another line of the card."""
    return " ".join(" ".join(exactly(value)).split())


def wait(seconds: float) -> str:
    if seconds >= 7_200:
        return f"{round(seconds / 3_600)} hours"
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


# language: (yes, no)
WORDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "English": (("yes", "y", "yep", "yeah", "ok", "okay", "sure", "allow", "approve"), ("no", "n", "nope", "deny")),
    "German": (("ja", "jo", "klar", "in ordnung", "erlauben"), ("nein", "nee", "ablehnen")),
    "French": (("oui", "ouais", "d'accord", "d’accord", "autoriser"), ("non", "refuser")),
    "Spanish": (("sí", "si", "vale", "de acuerdo", "permitir"), ("no", "denegar")),
    "Italian": (("sì", "si", "va bene", "d'accordo", "d’accordo"), ("no", "nega")),
    "Portuguese": (("sim", "tá bom", "está bem", "permitir"), ("não", "nao", "negar")),
    "Dutch": (("ja", "oké", "oke", "prima", "akkoord"), ("nee", "weigeren")),
    "Polish": (("tak", "dobrze", "zgoda"), ("nie", "odmów")),
    "Russian": (("да", "ок", "хорошо", "ладно", "разрешить"), ("нет", "запретить")),
    "Chinese": (("是", "是的", "好", "好的", "可以", "同意", "允许"), ("不", "不是", "不行", "不可以", "不要", "拒绝")),
}
_YES = frozenset(unicodedata.normalize("NFC", word).casefold() for yes, _ in WORDS.values() for word in yes)
_NO = frozenset(unicodedata.normalize("NFC", word).casefold() for _, no in WORDS.values() for word in no)
_LONGEST = 24


def answer_in_words(message: str) -> Literal["once", "deny"] | None:
    """The answer that a message gives; None unless it is a plain yes or no. Case, and a final full stop or exclamation
    mark, do not matter."""
    if len(message) > _LONGEST:
        return None
    word = " ".join(unicodedata.normalize("NFC", message).casefold().split()).rstrip(".!。！ ")
    return "once" if word in _YES else "deny" if word in _NO else None
