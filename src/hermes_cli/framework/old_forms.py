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
    ("mcp", "reauth"): ("mcp", "login"),
    ("memory", "status"): ("memory", "show"),
    ("sessions", "optimize"): ("state", "maintain"),
    ("sessions", "repair"): ("state", "check", "--fix"),
    ("sessions", "repair", "--check-only"): ("state", "check"),
    ("setup", "model"): ("setup",),
    ("skills", "inspect"): ("skills", "show"),
    ("tools", "--summary"): ("tools",),
    ("tools", "list"): ("tools",),
}
"""The beginning of a command line and its replacement."""

_FORMS: dict[str, str] = {
    "Hermes has no such part.": (
        "acp, bundles, checkpoints, claw, computer-use, curator, dashboard, desktop, journey, kanban, lsp, pets, "
        "project, prompt-size, setup tts"
    ),
    "Hermes uses keys, no logins: hermes setup asks for one.": "auth, login, portal, setup --portal",
    "hermes chat opens the window.": "console",
    "hermes doctor, hermes status and hermes logs show what there is.": "debug, dump",
    "hermes config set fallback_providers '[PROVIDER/MODEL]' sets them.": "fallback",
    "Shell hooks are not run; hermes config set hooks.enabled '[NAME]' loads hooks of the gateway.": "hooks",
    "hermes config unset NAME removes a key.": "logout",
    "hermes import hermes PATH brings a home of hermes-agent over.": "migrate",
    "One model answers; hermes --model NAME chooses it.": "moa",
    "Nothing is left to do after the installation; hermes setup chooses a model.": "postinstall",
    "One home is one profile: set HERMES_HOME to another folder.": "profile, chat --profile, chat -p",
    "hermes api key switches the HTTP API on.": "proxy",
    "Keys are in .env: hermes config set NAME asks for one.": "secrets",
    "hermes doctor checks the installation.": "security",
    "hermes api key switches the HTTP API on, and hermes gateway start serves it.": "serve",
    "Hermes has no adapter for it; hermes gateway setup lists the platforms that it can connect.":
        "slack, whatsapp, whatsapp-cloud",
    "hermes gateway uninstall removes the service; then remove the package.": "uninstall",
    "Upgrade the package as you installed it; see docs/operators/upgrade.md.": "update",
    "Hermes has no webhook server; programs call the HTTP API (hermes api key).": "webhook",
    "Nothing needs it: config.yaml is read as it is. hermes config check lists what is not used.": "config migrate",
    "Add it again, then remove the old one: hermes cron add, hermes cron remove.": "cron edit",
    "Nothing needs it: a running gateway runs jobs in time; hermes cron run JOB runs one now.": "cron tick",
    "One gateway serves one home: hermes gateway status shows it.": "gateway list",
    "hermes backup restore FILE takes a backup of Hermes; one of hermes-agent must be unpacked first: hermes import"
    " hermes FOLDER.": "import .zip",
    "hermes logs shows the end of all logs; filter its lines with grep.":
        "logs errors, logs gui, logs --component, logs --level, logs --since",
    "hermes logs agent and hermes logs gateway are all there is.": "logs list",
    "hermes mcp add NAME --url URL, or --command COMMAND, adds a server; hermes mcp list shows all.":
        "mcp --preset, mcp catalog, mcp configure, mcp install",
    "hermes config set agent.disabled_toolsets '[memory]' switches it off.": "memory off",
    "hermes memory path prints where the files are; remove them.": "memory reset",
    "Nothing needs it: memory is kept in files (hermes memory path).": "memory setup",
    "A plug-in is a folder in plugins/ of the home; hermes plugins enable NAME loads it.":
        "plugins install, plugins remove, plugins update",
    "hermes, then Ctrl+R, searches and opens conversations; hermes sessions list prints them.": "sessions browse",
    "Leave it out: hermes setup asks everything in turn.": "setup agent, setup --quick, setup --reconfigure",
    "hermes gateway setup lists the platforms, and connects the one that is named.": "setup gateway",
    "hermes config set executor confined chooses what holds commands.": "setup terminal",
    "hermes config set agent.disabled_toolsets '[NAME]' disables some; an empty list enables all.":
        "setup tools, tools disable, tools enable",
    "A skill is a folder in skills/ of the home; hermes skills list shows them.": (
        "skills audit, skills browse, skills check, skills config, skills diff, skills publish, skills reset, "
        "skills search, skills snapshot, skills tap, skills uninstall, skills update"
    ),
    "Leave it out: shell hooks are not run. hermes config check lists those of this home.":
        "chat --accept-hooks, gateway --accept-hooks",
    "Leave it out: files have no checkpoints.": "chat --checkpoints",
    "Leave it out: there is nothing to choose.":
        "chat --dev, gateway --external-supervisor, gateway --no-supervise, state --no-backup",
    "Leave it out, or start in a folder without AGENTS.md and its like.": "chat --ignore-rules",
    "Set HERMES_HOME to an empty folder instead.": "chat --ignore-user-config",
    "Leave it out: Hermes stays in the folder it is started in.": "chat --no-restore-cwd",
    "Leave it out; hermes -q TEXT --json prints the session's id.": "chat --pass-session-id",
    "HERMES_SAFE_MODE=1 before the command loads no plug-in.": "chat --safe-mode",
    "Leave it out: the model loads skills itself; hermes skills list shows them.": "chat --skills, chat -s",
    "Leave it out: the window opens by itself.": "chat --tui",
    "HERMES_DEBUG=1 before the command logs more.": "chat --verbose, chat -v, gateway -v, gateway -vv, mcp -v",
    "Make it with git worktree add, and run hermes chat there.": "chat --worktree, chat -w",
    "Leave it out: without a TASK, the output of --script is sent as it is.": "cron --no-agent",
    "Leave it out: a job runs until hermes cron remove; a time runs once.": "cron --repeat",
    "Leave it out: a script runs in the workspace of the home.": "cron --workdir",
    "hermes config acknowledge NAME accepts an entry that is not used.": "doctor --ack",
    "One gateway serves one home; leave it out.": "gateway --all",
    "Leave it out: all is shown. hermes doctor --online checks more.": "gateway --deep, status --deep",
    "Leave it out: a second gateway of a home is always refused.": "gateway --force",
    "Leave it out: all is shown.": "gateway --full, gateway -l, status --all",
    "Leave it out: hermes gateway install makes a unit of the user, and starts it.": (
        "gateway --no-start-now, gateway --no-start-on-login, gateway --run-as-user, gateway --start-now, "
        "gateway --start-on-login, gateway --system"
    ),
    "hermes gateway restart replaces the one that runs.": "gateway --replace",
    "Send its output to /dev/null; the log has it.": "gateway -q",
    "hermes trace ID shows the life of one message.": "logs --session",
    "Leave it out: hermes setup asks servers for their models.": "model --refresh",
    "Use --format jsonl and pick the lines with jq.": "sessions --only",
    "Leave it out: keys are covered unless --keep-secrets is given.": "sessions --redact",
    "hermes config unset KEY removes a setting.": "setup --reset",
    "hermes usage --since 7d takes a number of days.": "usage --days",
    "hermes usage --by conversation shows where it went.": "usage --source",
}  # fmt: skip
"""By hint, the forms of hermes-agent that it answers: `COMMAND`, `COMMAND VERB` or `COMMAND --flag`."""

INSTEAD: dict[str, str] = {form: hint for hint, forms in _FORMS.items() for form in forms.split(", ")}


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
