"""The table of commands: what `hermes` can do, on one screen.

A row costs nothing until it is chosen. Only then is its module imported and its `register(parser)` called,
which adds arguments or verbs and sets `run`: a function of the parsed arguments that returns an exit code,
or None for 0. A new command is one line here and one module.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be half of what `hermes --help` costs
if TYPE_CHECKING:
    from hermes_cli.framework.parser import Parser


class Command:
    """One row: a name, a short description, and the module below `hermes_cli` (or `module:function`) that runs it."""

    __slots__ = ("help", "module", "name")

    def __init__(self, name: str, help: str, module: str) -> None:  # noqa: A002  argparse's word
        self.name = name
        self.help = help
        self.module = module

    def register(self, parser: Parser) -> None:
        """Import the command's module and let it describe its arguments."""
        from importlib import import_module

        module, _, function = self.module.partition(":")
        getattr(import_module(f"hermes_cli.{module}"), function or "register")(parser)


GROUPS: dict[str, tuple[Command, ...]] = {
    "Conversations": (
        Command("chat", "talk to Hermes, or have one question answered", "chat.command"),
        Command("sessions", "list, read, search, move and remove conversations", "sessions.command"),
        Command("usage", "show what models were used and what it cost, and what is left", "operate.usage"),
        Command("demo", "talk to Hermes on a throw-away home in ./.demo", "demo.command"),
    ),
    "Gateway": (
        Command("gateway", "run, start, stop and see the gateway; connect a chat platform", "operate.gateway"),
        Command("api", "print or change the key of the HTTP server", "maintenance.inspect:register_api"),
        Command("send", "send a message to a chat", "operate.send"),
        Command("inbox", "show messages that came in and what became of them", "operate.inbox"),
        Command("turns", "show what is being worked on, and end it", "operate.turns"),
        Command("trace", "show the life of a message, from its arrival to its delivery", "operate.trace"),
        Command("outbox", "show what is owed to chats; retry or drop what is stuck", "operate.outbox"),
    ),
    "Data": (
        Command("backup", "make, check, list and restore backups", "maintenance.backup"),
        Command("state", "check, tidy, index, move and convert the store", "maintenance.state"),
    ),
    "Set-up": (
        Command("setup", "choose a model, a platform, safety and limits, in five questions", "setup.command"),
        Command("doctor", "check that everything is as it should be, and say what to do", "doctor.command"),
        Command("status", "show where the data is, the model, the gateway and what is left", "operate.status"),
        Command("logs", "show what was written down: of the agent, or the gateway", "operate.logs"),
        Command("config", "show, check and change the configuration", "maintenance.config"),
        Command(
            "model",
            "show which model is used, where it is and what it costs",
            "maintenance.inspect:register_model",
        ),
        Command("tools", "show what the model may call", "maintenance.inspect:register_tools"),
        Command("approvals", "list and take back what runs without a question", "maintenance.approvals"),
        Command("memory", "show what is remembered of you", "maintenance.inspect:register_memory"),
        Command("skills", "show what the model can look up", "maintenance.inspect:register_skills"),
        Command("pairing", "let people in who ask, and shut them out", "maintenance.pairing"),
        Command("people", "show whom Hermes knows, and give roles", "maintenance.people"),
        Command("plugins", "list plug-ins, and enable or disable one", "maintenance.plugin_commands"),
        Command("import", "bring over a home of the reference", "maintenance.import_home"),
        Command("completion", "print what completes commands in your shell", "maintenance.completion"),
    ),
}

COMMANDS: dict[str, Command] = {row.name: row for rows in GROUPS.values() for row in rows}
