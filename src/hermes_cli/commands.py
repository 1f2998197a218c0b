"""The table of commands: what `hermes` can do, on one screen.

A row costs nothing until it is chosen. Only then is its module imported and its `register(parser)` called,
which adds arguments or verbs and sets `run`: a function of the parsed arguments that returns an exit code,
or None for 0. A new command is one line here and one module.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be half of what `hermes --help` costs
if TYPE_CHECKING:
    from hermes_cli.parser import Parser


class Command:
    """One row: a name, what it does in a few words, and the module that does it."""

    __slots__ = ("help", "module", "name")

    def __init__(self, name: str, help: str, module: str) -> None:  # noqa: A002  argparse's word
        self.name = name
        self.help = help
        self.module = module

    def register(self, parser: Parser) -> None:
        """Import the command's module and let it describe its arguments."""
        from importlib import import_module

        import_module(self.module).register(parser)


GROUPS: dict[str, tuple[Command, ...]] = {
    "Conversations": (
        Command("chat", "talk to Hermes, or have one question answered", "hermes_cli.chat.command"),
        Command("sessions", "list, read, search, move and remove conversations", "hermes_cli.cmd_sessions"),
        Command("usage", "show what models were used and what it cost, and what is left", "hermes_cli.cmd_usage"),
        Command("demo", "talk to Hermes on a throw-away home in ./.demo", "hermes_cli.cmd_demo"),
    ),
    "Gateway": (
        Command("gateway", "run, start, stop and see the gateway; connect a chat platform", "hermes_cli.cmd_gateway"),
        Command("api", "print or change the key of the HTTP server", "hermes_cli.cmd_api"),
        Command("send", "send a message to a chat", "hermes_cli.cmd_send"),
        Command("inbox", "show messages that came in and what became of them", "hermes_cli.cmd_inbox"),
        Command("turns", "show what is being worked on, and end it", "hermes_cli.cmd_turns"),
        Command("trace", "show the life of a message, from its arrival to its delivery", "hermes_cli.cmd_trace"),
        Command("outbox", "show what is owed to chats; retry or drop what is stuck", "hermes_cli.cmd_outbox"),
    ),
    "Data": (
        Command("backup", "make, check, list and restore backups", "hermes_cli.cmd_backup"),
        Command("state", "check, tidy, index, move and convert the store", "hermes_cli.cmd_state"),
    ),
    "Set-up": (
        Command("setup", "choose a model, a platform, safety and limits, in five questions", "hermes_cli.cmd_setup"),
        Command("doctor", "check that everything is as it should be, and say what to do", "hermes_cli.cmd_doctor"),
        Command("status", "show where the data is, the model, the gateway and what is left", "hermes_cli.cmd_status"),
        Command("logs", "show what was written down: of the agent, or the gateway", "hermes_cli.cmd_logs"),
        Command("config", "show, check and change the configuration", "hermes_cli.cmd_config"),
        Command("model", "show which model is used, where it is and what it costs", "hermes_cli.cmd_model"),
        Command("tools", "show what the model may call", "hermes_cli.cmd_tools"),
        Command("approvals", "list and take back what runs without a question", "hermes_cli.cmd_approvals"),
        Command("memory", "show what is remembered of you", "hermes_cli.cmd_memory"),
        Command("skills", "show what the model can look up", "hermes_cli.cmd_skills"),
        Command("pairing", "let people in who ask, and shut them out", "hermes_cli.cmd_pairing"),
        Command("people", "show whom Hermes knows, and give roles", "hermes_cli.cmd_people"),
        Command("plugins", "list plug-ins, and enable or disable one", "hermes_cli.cmd_plugins"),
        Command("import", "bring over a home of the reference", "hermes_cli.cmd_import"),
        Command("completion", "print what completes commands in your shell", "hermes_cli.cmd_completion"),
    ),
}

COMMANDS: dict[str, Command] = {row.name: row for rows in GROUPS.values() for row in rows}
