"""Commands, verbs and flags of hermes-agent that Hermes spells differently or does not have.

A form with the same meaning runs (`SAME`). For every other form the error says what to write instead (`INSTEAD`).
"""

from __future__ import annotations

SAME: dict[tuple[str, ...], tuple[str, ...]] = {
    ("config", "env-path"): ("config", "path", "--env"),
    ("cron", "create"): ("cron", "add"),
    ("cron", "delete"): ("cron", "remove"),
    ("cron", "history"): ("cron", "ledger"),
    ("cron", "rm"): ("cron", "remove"),
    ("cron", "runs"): ("cron", "ledger"),
    ("cron", "status"): ("cron", "list"),
    ("insights",): ("usage",),
    ("memory", "status"): ("memory", "show"),
    ("sessions", "optimize"): ("state", "maintain"),
    ("sessions", "repair"): ("state", "check", "--fix"),
    ("sessions", "repair", "--check-only"): ("state", "check"),
    ("setup", "model"): ("setup",),
    ("skills", "inspect"): ("skills", "show"),
    ("tools", "list"): ("tools",),
}
"""The beginning of a command line and its replacement."""

_NO_PART = "Hermes has no such part."
_NO_LOGINS = "Hermes uses keys, no logins: hermes setup asks for one."
_NO_ADAPTER = "Hermes has no adapter for it; hermes gateway setup lists the platforms that it can connect."
_SKILLS = "A skill is a folder in skills/ of the home; hermes skills list shows them."
_PLUGINS = "A plug-in is a folder in plugins/ of the home; hermes plugins enable NAME loads it."
_TOOLSETS = "hermes config set agent.disabled_toolsets '[NAME]' disables some; an empty list enables all."
_SETUP = "Leave it out: hermes setup asks everything in turn."
_LEAVE_OUT = "Leave it out: there is nothing to choose."
_DEBUG = "HERMES_DEBUG=1 before the command logs more."
_HOME = "One home is one profile: set HERMES_HOME to another folder."
_UNIT = "Leave it out: hermes gateway install makes a unit of the user, and starts it."
_LOGS = "hermes logs shows the end of all logs; filter its lines with grep."

INSTEAD: dict[str, str] = {
    "acp": _NO_PART,
    "auth": _NO_LOGINS,
    "bundles": _NO_PART,
    "checkpoints": _NO_PART,
    "claw": _NO_PART,
    "computer-use": _NO_PART,
    "console": "hermes chat opens the window.",
    "curator": _NO_PART,
    "dashboard": _NO_PART,
    "debug": "hermes doctor, hermes status and hermes logs show what there is.",
    "desktop": _NO_PART,
    "dump": "hermes doctor, hermes status and hermes logs show what there is.",
    "fallback": "hermes config set fallback_providers '[PROVIDER/MODEL]' sets them.",
    "hooks": "Shell hooks are not run; hermes config set hooks.enabled '[NAME]' loads hooks of the gateway.",
    "journey": _NO_PART,
    "kanban": _NO_PART,
    "login": _NO_LOGINS,
    "logout": "hermes config unset NAME removes a key.",
    "lsp": _NO_PART,
    "migrate": "hermes import hermes PATH brings a home of hermes-agent over.",
    "moa": "One model answers; hermes --model NAME chooses it.",
    "pets": _NO_PART,
    "portal": _NO_LOGINS,
    "postinstall": "Nothing is left to do after the installation; hermes setup chooses a model.",
    "profile": _HOME,
    "project": _NO_PART,
    "prompt-size": _NO_PART,
    "proxy": "hermes api key switches the HTTP API on.",
    "secrets": "Keys are in .env: hermes config set NAME asks for one.",
    "security": "hermes doctor checks the installation.",
    "serve": "hermes api key switches the HTTP API on, and hermes gateway start serves it.",
    "slack": _NO_ADAPTER,
    "uninstall": "hermes gateway uninstall removes the service; then remove the package.",
    "update": "Upgrade the package as you installed it; see docs/operators/upgrade.md.",
    "webhook": "Hermes has no webhook server; programs call the HTTP API (hermes api key).",
    "whatsapp": _NO_ADAPTER,
    "whatsapp-cloud": _NO_ADAPTER,
    # -- verbs
    "config migrate": "Nothing needs it: config.yaml is read as it is. hermes config check lists what is not used.",
    "cron edit": "Add it anew, then remove the old one: hermes cron add, hermes cron remove.",
    "cron tick": "Nothing needs it: a running gateway runs jobs in time; hermes cron run JOB runs one now.",
    "gateway list": "One gateway serves one home: hermes gateway status shows it.",
    "import .zip": "hermes backup restore FILE takes a backup of Hermes; one of hermes-agent must be unpacked first:"
    " hermes import hermes FOLDER.",
    "logs errors": _LOGS,
    "logs gui": _LOGS,
    "logs list": "hermes logs agent and hermes logs gateway are all there is.",
    "memory off": "hermes config set agent.disabled_toolsets '[memory]' switches it off.",
    "memory reset": "hermes memory path prints where the files are; remove them.",
    "memory setup": "Nothing needs it: memory is kept in files (hermes memory path).",
    "plugins install": _PLUGINS,
    "plugins remove": _PLUGINS,
    "plugins update": _PLUGINS,
    "sessions browse": "hermes, then Ctrl+R, searches and opens conversations; hermes sessions list prints them.",
    "setup agent": _SETUP,
    "setup gateway": "hermes gateway setup lists the platforms, and connects the one that is named.",
    "setup terminal": "hermes config set executor confined chooses what holds commands.",
    "setup tools": _TOOLSETS,
    "setup tts": _NO_PART,
    "tools disable": _TOOLSETS,
    "tools enable": _TOOLSETS,
    **{f"skills {verb}": _SKILLS for verb in (
        "audit", "browse", "check", "config", "diff", "publish", "reset", "search", "snapshot", "tap",
        "uninstall", "update")},
    # -- flags
    "chat --accept-hooks": "Leave it out: shell hooks are not run. hermes config check lists those of this home.",
    "chat --checkpoints": "Leave it out: files have no checkpoints.",
    "chat --dev": _LEAVE_OUT,
    "chat --ignore-rules": "Leave it out, or start in a folder without AGENTS.md and its like.",
    "chat --ignore-user-config": "Set HERMES_HOME to an empty folder instead.",
    "chat --no-restore-cwd": "Leave it out: Hermes stays in the folder it is started in.",
    "chat --pass-session-id": "Leave it out; hermes -q TEXT --json prints the session's id.",
    "chat --profile": _HOME,
    "chat --safe-mode": "HERMES_SAFE_MODE=1 before the command loads no plug-in.",
    "chat --skills": "Leave it out: the model loads skills itself; hermes skills list shows them.",
    "chat --tui": "Leave it out: the window opens by itself.",
    "chat --verbose": _DEBUG,
    "chat --worktree": "Make it with git worktree add, and run hermes chat there.",
    "chat -p": _HOME,
    "chat -s": "Leave it out: the model loads skills itself; hermes skills list shows them.",
    "chat -v": _DEBUG,
    "chat -w": "Make it with git worktree add, and run hermes chat there.",
    "cron --no-agent": "Leave it out: without a TASK, the output of --script is sent as it is.",
    "cron --repeat": "Leave it out: a job runs until hermes cron remove; a time runs once.",
    "cron --workdir": "Leave it out: a script runs in the workspace of the home.",
    "doctor --ack": "hermes config acknowledge NAME accepts an entry that is not used.",
    "gateway --accept-hooks": "Leave it out: shell hooks are not run. hermes config check lists those of this home.",
    "gateway --all": "One gateway serves one home; leave it out.",
    "gateway --deep": "Leave it out: all is shown. hermes doctor --online checks more.",
    "gateway --external-supervisor": _LEAVE_OUT,
    "gateway --force": "Leave it out: a second gateway of a home is always refused.",
    "gateway --full": "Leave it out: all is shown.",
    "gateway --no-start-now": _UNIT,
    "gateway --no-start-on-login": _UNIT,
    "gateway --no-supervise": _LEAVE_OUT,
    "gateway --replace": "hermes gateway restart replaces the one that runs.",
    "gateway --run-as-user": _UNIT,
    "gateway --start-now": _UNIT,
    "gateway --start-on-login": _UNIT,
    "gateway --system": _UNIT,
    "gateway -l": "Leave it out: all is shown.",
    "gateway -q": "Send its output to /dev/null; the log has it.",
    "gateway -v": _DEBUG,
    "gateway -vv": _DEBUG,
    "logs --component": _LOGS,
    "logs --level": _LOGS,
    "logs --session": "hermes trace ID shows the life of one message.",
    "logs --since": _LOGS,
    "model --refresh": "Leave it out: hermes setup asks servers for their models.",
    "sessions --no-backup": _LEAVE_OUT,
    "sessions --only": "Use --format jsonl and pick the lines with jq.",
    "sessions --redact": "Leave it out: keys are covered unless --keep-secrets is given.",
    "setup --portal": _NO_LOGINS,
    "setup --quick": _SETUP,
    "setup --reconfigure": _SETUP,
    "setup --reset": "hermes config unset KEY removes a setting.",
    "status --all": "Leave it out: all is shown.",
    "status --deep": "Leave it out: all is shown. hermes doctor --online checks more.",
    "usage --days": "hermes usage --since 7d takes a number of days.",
    "usage --source": "hermes usage --by conversation shows where it went.",
}  # fmt: skip
"""`COMMAND`, `COMMAND VERB` or `COMMAND --flag` of hermes-agent, with the hint for Hermes."""


def rewritten(arguments: list[str]) -> list[str]:
    """Replace a hermes-agent form by the Hermes command line with the same meaning."""
    if arguments == ["backup"]:  # the help would exit with 0, and a script would believe that it has a backup
        return ["backup", "create"]
    for length in (3, 2, 1):
        if (ours := SAME.get(tuple(arguments[:length]))) is not None:
            return [*ours, *arguments[length:]]
    return arguments


def instead(command: str, words: list[str]) -> str:
    """Return the hint for the first of these words that hermes-agent knows; empty when it knows none."""
    for word in words:
        word = word.strip("'\",").partition("=")[0]
        word = ".zip" if word.endswith(".zip") else word
        if found := INSTEAD.get(f"{command} {word}"):
            return found
    return ""
