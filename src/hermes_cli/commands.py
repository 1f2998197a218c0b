"""The table of commands: everything `hermes` can do, on one screen.

`framework.parser.parser_of` imports the module of the chosen command only and calls its `register(parser)`, or
`register_NAME(parser)` where a module has several commands. That function adds arguments or verbs and sets `run`, a
function that takes the parsed arguments and returns a `CommandAnswer` (`framework.output`), an exit code, or None for
0. A new command is one line here and one module.
"""

from __future__ import annotations


class Command:
    """One row: a name, a short description, and the module that registers it."""

    __slots__ = ("help", "module", "name")

    def __init__(self, name: str, help: str, module: str) -> None:  # noqa: A002  argparse's word
        self.name = name
        self.help = help
        self.module = module


GROUPS: dict[str, tuple[Command, ...]] = {
    "Conversations": (
        Command("chat", "talk to Hermes, or ask one question", "hermes_cli.chat.command"),
        Command("sessions", "list, read, search, move and remove conversations", "hermes_cli.sessions.command"),
        Command("usage", "show model use, its cost and the rest of the budget", "hermes_cli.operate.usage"),
        Command("demo", "try Hermes with a temporary home in ./.demo", "hermes_cli.demo.command"),
    ),
    "Gateway": (
        Command("gateway", "run, start, stop and watch the gateway; connect a platform", "hermes_cli.operate.gateway"),
        Command("api", "print or change the key of the HTTP server", "hermes_cli.maintenance.inspect"),
        Command(
            "mcp", "use the tools of MCP servers; offer your conversations to other agents", "hermes_cli.operate.mcp"
        ),
        Command("send", "send a message to a chat", "hermes_cli.operate.messages"),
        Command("inbox", "show incoming messages and their state", "hermes_cli.operate.messages"),
        Command("cron", "schedule jobs and reminders, and show every run of them", "hermes_cli.operate.cron"),
        Command("turns", "show turns and how their answers came about; cancel one", "hermes_cli.operate.turns"),
        Command("process", "show background processes and their output; end one", "hermes_cli.operate.processes"),
        Command("trace", "follow one message from its arrival to its delivery", "hermes_cli.operate.trace"),
        Command("replay", "ask another model the same turn, without repeating anything", "hermes_cli.operate.replay"),
        Command(
            "outbox",
            "show deliveries; send held ones, retry or drop failed ones",
            "hermes_cli.operate.messages",
        ),
    ),
    "Data": (
        Command("backup", "make, check, list and restore backups", "hermes_cli.maintenance.backup"),
        Command("state", "check, fix, prune, index, move and convert the store", "hermes_cli.maintenance.state"),
    ),
    "Set-up": (
        Command(
            "setup",
            "choose a model, a platform, approvals and a spending limit",
            "hermes_cli.setup.command",
        ),
        Command("doctor", "check the installation, and show how to fix problems", "hermes_cli.doctor.command"),
        Command(
            "status", "show the home, the model, the gateway and the rest of the budget", "hermes_cli.operate.status"
        ),
        Command("logs", "show the logs of the agent and the gateway", "hermes_cli.operate.logs"),
        Command("config", "show, check and change the configuration", "hermes_cli.maintenance.config"),
        Command("model", "show the model in use and its price", "hermes_cli.maintenance.inspect"),
        Command("tools", "show which tools the model may call", "hermes_cli.maintenance.inspect"),
        Command("approvals", "list and revoke standing permissions", "hermes_cli.maintenance.approvals"),
        Command("memory", "show, edit and delete what Hermes remembers about you", "hermes_cli.maintenance.memory"),
        Command("skills", "show, install and undo skills", "hermes_cli.maintenance.skills"),
        Command("proposals", "decide about proposed changes of skills and memory", "hermes_cli.maintenance.skills"),
        Command("pairing", "approve people who ask for access, and revoke access", "hermes_cli.maintenance.people"),
        Command("people", "show known people, and change their roles", "hermes_cli.maintenance.people"),
        Command("plugins", "list plug-ins, and enable or disable one", "hermes_cli.maintenance.plugin_commands"),
        Command("import", "import a hermes-agent home", "hermes_cli.maintenance.import_home"),
        Command("completion", "print a completion script for your shell", "hermes_cli.maintenance.completion"),
    ),
}

COMMANDS: dict[str, Command] = {row.name: row for rows in GROUPS.values() for row in rows}
