"""Commands with a language of their own: sed, awk, git, interpreters and the tools of a project.

Each rule says why to ask, or nothing. They allow what they recognise and ask about the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hermes_agent.approvals.calls import Call
from hermes_agent.approvals.places import Places
from hermes_agent.approvals.words import UNKNOWN, Word, names
from hermes_agent.approvals.wrappers import name_of

_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\]|\\.)*/I?)(?:[,~+]*(?:\d+|\$|/(?:[^/\\]|\\.)*/I?))?\s*!?\s*"
_SED_STEP = re.compile(
    rf"\s*(?:{_SED_ADDRESS})?(?:[pdDgGhHnNPqQxl=]|[qQ]\d+|s([/|#,:@!])(?:(?!\1)[^\\]|\\.)*\1(?:(?!\1)[^\\]|\\.)*\1[gpiIM\d]*"
    r"|y/(?:[^/\\]|\\.)*/(?:[^/\\]|\\.)*/)?\s*",
    re.DOTALL,
)
_AWK_DOING = re.compile(r"system|getline|[|>@]|close\s*\(")
_GIT_LOOKING = names(
    """status diff log show blame grep ls-files ls-tree rev-parse rev-list describe shortlog cat-file name-rev
    merge-base whatchanged count-objects check-ignore check-attr for-each-ref show-ref show-branch var version help"""
)
_GIT_LISTING: Mapping[str, str] = MappingProxyType(
    {
        "branch": r"-[avrl]+|-vv|--(?:all|list|verbose|remotes|show-current|contains|merged|no-merged)",
        "tag": r"-[ln]\d*|--(?:list|contains|sort=.*)",
        "remote": r"-v|--verbose|get-url|origin|upstream",
        "stash": r"list|show",
        "worktree": r"list",
        "config": r"--(?:get|list|get-all|get-regexp|local)|-l|[\w.-]+",
        "reflog": r"show|-n|\d+|HEAD",
    }
)
_GIT_TURNING = (
    "output",
    "ext-diff",
    "textconv",
    "open-files-in-pager",
    "exec",
    "upload-pack",
    "receive-pack",
    "config-env",
)
_TARGETS = names(
    "all test tests check lint format fmt types typecheck build docs doc help bench coverage unit style mypy"
)
_SCRIPTS = names("test t tests lint build typecheck type-check format check unit coverage")
_SUBCOMMANDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "cargo": names("test t build b check c clippy fmt doc bench tree metadata version --version"),
        "go": names("test build vet fmt list version doc mod"),
        "uv": names("version --version tree"),
        "pip": names("list show freeze check --version"),
        "dotnet": names("test build --version --info"),
        "ruff": names("check format rule --version version"),
    }
)
_MODULES = names(
    "pytest unittest mypy ruff json.tool compileall py_compile doctest black isort flake8 pylint tokenize this"
)
_PYTHON_FLAGS = re.compile(r"-[BEIOPRSbdqsuvx]+|-OO|-V|-VV|--version|-h|--help")


def _sed(call: Call, places: Places) -> str:
    scripts: list[Word] = []
    operands: list[Word] = []
    in_place = False
    words = list(call.words[1:])
    while words:
        word = words.pop(0)
        if re.fullmatch(r"-[nErsuz]*i.*|--in-place.*", word.text):
            in_place = True
        elif word.text in ("-e", "--expression") and words:
            scripts.append(words.pop(0))
        elif not re.fullmatch(
            r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|debug|posix|sandbox|null-data)", word.text
        ):
            if word.text.startswith("-") or word.text.startswith(UNKNOWN):
                return "sed has an option that is not understood"
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    for script in scripts:
        steps = re.split(r"[;\n{}]", script.text)
        if not script.sure or not (
            _SED_STEP.fullmatch(script.text) or all(_SED_STEP.fullmatch(step) for step in steps)
        ):
            return "what this sed script does is not understood"
    return _written(operands, call, places) if in_place else ""


def _awk(call: Call, places: Places) -> str:
    at = 1
    while at < len(call.words) and call.words[at].text.startswith("-"):
        text = call.words[at].text
        if not re.match(r"-[Fv]", text):
            return "awk has an option that is not understood"
        at += 2 if text in ("-F", "-v") else 1
    if at >= len(call.words) or not call.words[at].sure or _AWK_DOING.search(call.words[at].text):
        return "what this awk program does is not understood"
    return ""


def _written(words: Sequence[Word], call: Call, places: Places) -> str:
    return next((found.why for word in words if (found := places.writing(word, call.scope.places()))), "")


def _git(call: Call, places: Places) -> str:
    words = list(call.words[1:])
    while words and words[0].text.startswith("-"):
        option = words.pop(0)
        if option.text == "-C" and words:
            why = _inside([words.pop(0)], call, places)
            if why:
                return why
        elif option.text not in ("--no-pager", "-P", "--version", "--no-optional-locks", "--help"):
            return f"git has the option {option.text.partition('=')[0][:20]}"
    if not words:
        return ""
    verb, rest = words[0].text, words[1:]
    for word in rest:
        if not word.text.startswith("-") and not word.text.startswith(UNKNOWN):
            continue
        name = word.text[2:].partition("=")[0]
        turning = word.text.startswith("--") and name and any(long.startswith(name) for long in _GIT_TURNING)
        if turning or UNKNOWN in word.text or (verb == "grep" and word.text.startswith("-O")):
            return f"git {verb} has an option that runs or writes something"
    if verb in _GIT_LOOKING or verb in ("add", "commit"):
        return ""
    listing = _GIT_LISTING.get(verb)
    if listing and all(re.fullmatch(listing, word.text) for word in rest):
        values = [word for word in rest if not word.text.startswith("-")]
        if verb != "config" or len(values) < 2 or rest[0].text.startswith("--get"):
            return ""
    if verb == "stash" and not rest:
        return ""
    return f"git {verb[:30]} changes history, files or another place"


def _inside(words: Sequence[Word], call: Call, places: Places) -> str:
    """Programs of the workspace only: whatever is named by a path must lie in it."""
    for word in words:
        text = word.text.partition("=")[2] if word.text.startswith("-") and "=" in word.text else word.text
        if UNKNOWN in text:
            return "what it is given is known only to the running shell"
        if text.startswith(("/", "~")) or ".." in text.split("/"):
            for path in places.paths(Word(text, word.sure, word.glob), call.scope.places()) or [text]:
                if not places.in_workspace(path):
                    return f"{path} is outside the workspace"
    return _here(call, places)


def _here(call: Call, places: Places) -> str:
    for folder in call.scope.places():
        if folder is None or not places.in_workspace(folder):
            return "it runs outside the workspace"
    return ""


def _project_tool(call: Call, places: Places) -> str:
    if any(
        word.text.startswith(("--exec", "--config=", "--plugin", "--basetemp", "--rulesdir", "--resolve-plugins"))
        for word in call.words
    ):
        return f"{name_of(call.words[0])} has an option that runs something"
    return _inside(call.words[1:], call, places)


def _subcommands(call: Call, places: Places) -> str:
    name = name_of(call.words[0])
    verb = call.words[1].text if len(call.words) > 1 else ""
    allowed = _SUBCOMMANDS["pip" if name == "pip3" else name]
    if verb not in allowed or any(
        re.match(r"-{1,2}(?:exec|toolexec|vettool|ldflags|gcflags|config|modfile|overlay)\b", word.text)
        for word in call.words
    ):
        return f"{name} {verb[:30]} may install, change or reach something"
    if name == "go" and verb == "mod":
        return (
            ""
            if len(call.words) > 2 and call.words[2].text in ("graph", "why", "verify")
            else "go mod changes the project"
        )
    return _inside(call.words[2:], call, places)


def _scripts(call: Call, places: Places) -> str:
    """npm, yarn, pnpm: the usual scripts of package.json."""
    texts = [word.text for word in call.words[1:]]
    if texts[:1] in (["--version"], ["-v"], ["ls"], ["list"]):
        return ""
    verbs = texts[1:] if texts[:1] in (["run"], ["run-script"]) else texts
    if not verbs or verbs[0] not in _SCRIPTS:
        return f"{name_of(call.words[0])} {' '.join(texts)[:40]} may install, change or reach something"
    return _inside(call.words[2:], call, places)


def _make(call: Call, places: Places) -> str:
    for word in call.words[1:]:
        if re.fullmatch(r"-j\d*|-k|-s|-n|-B|--jobs(?:=\d+)?|--silent|--dry-run|--keep-going|\d+|--version", word.text):
            continue
        if word.text not in _TARGETS and not re.fullmatch(r"(?:test|lint|check|format|docs|build)[-_:]\w+", word.text):
            return f"make {word.text.replace(UNKNOWN, '…')[:40]} is not a target known to be harmless"
    return _here(call, places)


def _interpreter(call: Call, places: Places) -> str:
    """`python script.py` inside the workspace; code on the command line is not judged."""
    rest = call.words[1:]
    if len(rest) == 1 and rest[0].text in ("--version", "-v", "-V", "--help", "-h"):
        return ""
    return _program(rest, call, places)


def _python(call: Call, places: Places) -> str:
    words = list(call.words[1:])
    while words and (_PYTHON_FLAGS.fullmatch(words[0].text) or words[0].text in ("-W", "-X")):
        option = words.pop(0).text
        if option in ("-V", "-VV", "--version", "-h", "--help") and not words:
            return ""
        if option in ("-W", "-X"):
            words = words[1:]
    if len(words) > 1 and words[0].text == "-m":
        module = words[1].text
        if module == "pip" and len(words) > 2 and words[2].text in _SUBCOMMANDS["pip"]:
            return ""
        if module in _MODULES:
            return _inside(words[2:], call, places)
        return f"python -m {module[:40]} is not known to be harmless"
    return _program(words, call, places)


def _program(words: Sequence[Word], call: Call, places: Places) -> str:
    name = name_of(call.words[0])
    if not words or words[0].text.startswith("-") or not words[0].sure or words[0].glob:
        return f"{name} runs code that is not judged"
    for path in places.paths(words[0], call.scope.places()) or [""]:
        if not places.in_workspace(path):
            return f"{name} runs a program from outside the workspace"
    return _here(call, places)


Rule = Callable[[Call, Places], str]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "sed": _sed,
        **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
        "git": _git,
        "make": _make,
        **dict.fromkeys(("python", "python3", *(f"python3.{minor}" for minor in range(8, 20))), _python),
        **dict.fromkeys(("node", "ruby"), _interpreter),
        **dict.fromkeys((*_SUBCOMMANDS, "pip3"), _subcommands),
        **dict.fromkeys(("npm", "yarn", "pnpm"), _scripts),
        **dict.fromkeys(
            ("pytest", "py.test", "mypy", "flake8", "black", "isort", "pylint", "pyright", "tsc", "shellcheck"),
            _project_tool,
        ),
        **dict.fromkeys(("eslint", "prettier", "tox", "nox"), _project_tool),
    }
)
