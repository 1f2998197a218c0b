"""The slash-command registry: one table for every surface, and the function that runs typed commands.

A row holds a command's name, description, arguments, surfaces and roles; help is made from the rows. Other packages
`add` their commands; commands of plug-ins come last and never replace a built-in one. An unknown `/command` is answered
here and never sent to the model.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.commands import about, conversations, held_answers, jobs, knowledge, turns
from hermes_agent.commands.base import EVERYONE, STAFF, CommandContext, Handler, SlashCommand, Surface
from hermes_agent.text import brief, close_names, columns
from hermes_cli import plugins
from hermes_config.errors import HermesError

_TYPED = re.compile(r"/(?P<name>\S+)\s*(?P<args>.*)", re.DOTALL)
# Phones turn -- into a dash; a dash before a letter, at the start of a word, can only be an option.
_DASHES = re.compile(r"(?<!\S)[—–](?=[A-Za-z])")
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Invocation:
    name: str
    args: str
    bot: str = ""
    """The addressed bot (`/new@bot`) in lower case; empty if none was named."""


def parse(text: str) -> Invocation | None:
    """Parse a typed command; None for a text for the model (`/usr/bin is a folder`, a lone `/`)."""
    typed = _TYPED.fullmatch(text.strip())
    if typed is None:
        return None
    name, _, bot = typed["name"].lower().partition("@")
    if not name or "/" in name:
        return None
    return Invocation(name, _DASHES.sub("--", typed["args"]), bot)


_KNOWN = EVERYONE - {"guest"}


def _row(name: str, category: str, handler: Handler, description: str, **more: Any) -> SlashCommand:
    return SlashCommand(name=name, category=category, handler=handler, description=description, **more)


# fmt: off
ROWS = (
    _row("new", "Conversation", conversations.new, "start a new conversation", aliases=("reset",), args_hint="[title]",
         stops=True),
    _row("sessions", "Conversation", conversations.sessions, "list your conversations", args_hint="[words]",
         private=True),
    _row("resume", "Conversation", conversations.resume, "continue an earlier conversation",
         args_hint="[number, title or id]", private=True, idle=True),
    _row("branch", "Conversation", conversations.branch, "continue in a copy of this conversation", aliases=("fork",),
         args_hint="[title]", alters="always", idle=True),
    _row("title", "Conversation", conversations.title, "show or change the title", args_hint="[text]",
         alters="with words"),
    _row("stop", "Turns", turns.stop, "interrupt what is running; all: background processes too", args_hint="[all]"),
    _row("processes", "Turns", turns.processes, "list background processes, or end one", args_hint="[kill ID]",
         roles=STAFF),
    _row("agents", "Turns", turns.agents, "delegated work: what runs, or stop it", aliases=("tasks",),
         args_hint="[stop N | stop all]", alters="with words"),
    _row("undo", "Turns", turns.undo, "take back the last turn, or the last N", args_hint="[N]", alters="always",
         idle=True),
    _row("redo", "Turns", turns.redo, "bring back what /undo took", alters="always", idle=True),
    _row("retry", "Turns", turns.retry, "ask the last question again", alters="always", idle=True),
    _row("compress", "Turns", turns.compress, "summarise the older part now", aliases=("compact",),
         args_hint="[what matters]", alters="always", idle=True),
    _row("uncompress", "Turns", turns.uncompress, "undo the last compression; what was said since stays",
         alters="always", idle=True),
    _row("remind", "Jobs", jobs.remind, "send a text later", args_hint="WHEN TEXT", roles=_KNOWN),
    _row("cron", "Jobs", jobs.cron, "scheduled jobs: list, add, pause, resume, run, remove, ledger", roles=_KNOWN,
         args_hint="[add WHEN TASK | VERB ID]", private=True),
    _row("hold", "Settings", held_answers.hold, "hold answers to a chat until you send them",
         args_hint="[on|off] [platform:chat]", roles=frozenset({"owner"})),
    _row("held", "Turns", held_answers.held, "send, change or drop an answer that is held",
         args_hint="send|edit|drop NUMBER [TEXT]", private=True),
    _row("why", "Turns", turns.why, "how the last answer came about: commands, permissions, files, cost",
         args_hint="[turn]", shows=True),
    _row("model", "Settings", about.model, "show the model, or use another one here", args_hint="[name]", roles=_KNOWN,
         alters="with words"),
    _row("tools", "Settings", about.tools, "what the model may call here", shows=True),
    _row("mcp", "Settings", about.mcp, "the MCP servers and their state", roles=STAFF, shows=True),
    _row("skills", "Settings", knowledge.skills, "what the model can look up", roles=_KNOWN, shows=True),
    _row("proposals", "Settings", knowledge.proposals, "changes of skills and memory that wait for your yes",
         args_hint="[VERB ID]", roles=_KNOWN, private=True),
    _row("memory", "About", knowledge.memory, "what is remembered of you; confirm or forget an entry",
         args_hint="[confirm|forget TEXT]", private=True),
    _row("status", "About", about.status, "where this conversation stands", shows=True),
    _row("usage", "About", about.usage, "tokens and cost of this conversation", shows=True),
    _row("whoami", "About", about.whoami, "who Hermes takes you for", private=True, shows=True),
    _row("timezone", "About", about.timezone, "show or set your time zone", aliases=("tz",), args_hint="[Area/City]",
         private=True),
)
# fmt: on


def _help(ctx: CommandContext, args: str) -> str:
    if not args:
        return help_text(ctx.surface, role=ctx.person.role)
    name = args.split(maxsplit=1)[0].removeprefix("/").lower()
    command = find(ctx.surface, name)
    return unknown(name, ctx) if command is None else _described(command)


_OURS: dict[str, SlashCommand] = {row.name: row for row in ROWS}
_OURS["help"] = _row("help", "About", _help, "this list, or one command", args_hint="[command]", shows=True)
_VARIANTS: dict[tuple[Surface, str], SlashCommand] = {}
"""Rows that replace a built-in command on some surfaces only."""


def add(*commands: SlashCommand) -> None:
    """Add commands of another package. A row with a built-in name replaces that command, but only on the row's own
    surfaces if they are fewer."""
    for command in commands:
        known = _OURS.get(command.name)
        if known is not None and command.surfaces < known.surfaces:
            _VARIANTS.update({(surface, command.name): command for surface in command.surfaces})
        else:
            _OURS[command.name] = command


def table(surface: Surface) -> Mapping[str, SlashCommand]:
    """The commands of a surface by name: built-in ones, then those of plug-ins."""
    here = {name: row for name, row in _OURS.items() if surface in row.surfaces}
    ours = {name: _VARIANTS.get((surface, name), row) for name, row in here.items()}
    added = plugins.get_plugin_commands()
    return ours | {name: _of_plugin(command) for name, command in added.items() if not is_ours(name)}


def is_ours(name: str) -> bool:
    """Whether a built-in command has this name, so that a plug-in's is left out."""
    return name in _OURS or any(name in row.aliases for row in _OURS.values())


def help_text(surface: Surface, *, role: str = "owner") -> str:
    """The commands as a text for a person, by category."""
    grouped: dict[str, list[tuple[str, str]]] = {}
    for command in table(surface).values():
        if role in command.roles:
            also = f" (also {', '.join(f'/{alias}' for alias in command.aliases)})" if command.aliases else ""
            grouped.setdefault(command.category, []).append((_usage(command), f"{command.description}{also}"))
    wide = max(len(usage) for lines in grouped.values() for usage, _ in lines)
    parts = []
    for category, lines in grouped.items():
        parts.append("\n".join([category, columns([(f"  {usage:<{wide}}", about) for usage, about in lines])]))
    return "\n\n".join(parts)


async def run(ctx: CommandContext, text: str) -> bool:
    """Answer a slash command through `ctx.reply`. False: the text is not a command and goes to the model."""
    typed = parse(text)
    if typed is None:
        return False
    command = find(ctx.surface, typed.name)
    if command is None and (said := await knowledge.use_skill(ctx, typed.name, typed.args)) is not None:
        if said:
            await ctx.reply(said, personal=True)
        return True
    if command is None:
        refused = await asyncio.to_thread(unknown, typed.name, ctx)
    else:
        refused = refusal(command, ctx, typed.args)
    if command is None or refused:
        await ctx.reply(refused, personal=True)
        return True
    try:
        if command.stops and ctx.busy:
            await ctx.stop()
        plain = not inspect.iscoroutinefunction(command.handler)
        made = await asyncio.to_thread(command.handler, ctx, typed.args) if plain else command.handler(ctx, typed.args)
        answer = await made if inspect.isawaitable(made) else made
        personal = command.is_personal(typed.args)
    except HermesError as error:
        answer = error.one_line() if ctx.surface in ("cli", "tui") else error.in_chat()
        personal = True
    if answer:
        await ctx.reply(answer, personal=personal)
    return True


def find(surface: Surface, name: str) -> SlashCommand | None:
    """The command of this name or alias, as somebody typed it."""
    known = table(surface)
    found = known.get(name) or known.get(name.replace("_", "-"))  # some platforms' menus do not allow dashes
    return found or next((command for command in known.values() if name in command.aliases), None)


def refusal(command: SlashCommand, ctx: CommandContext, args: str) -> str:
    """Why this person cannot run the command here and now; empty if they can."""
    if ctx.person.role not in command.roles:
        return f"/{command.name} is not for {ctx.person.role}s."
    if command.private and not ctx.private:
        return f"/{command.name} is answered in private only: others read along here."
    alters = command.alters == "always" or (command.alters and args)
    if alters and ctx.shared and ctx.person.role not in STAFF:
        return f"/{command.name} changes this conversation for everybody here: ask an owner or admin."
    if command.idle and ctx.busy:
        return f"A turn is running. /stop it, then /{command.name}."
    return ""


_FORMS = {
    "Ask for it in words: Hermes delegates work, and /agents lists it.": ("background", "bg", "btw"),
    "/usage shows it.": ("insights",),
    "SOUL.md in the home is the personality.": ("personality",),
    "hermes config set agent.reasoning_effort high sets it.": ("reasoning",),
    "hermes gateway restart does it.": ("restart",),
    "Files have no checkpoints.": ("rollback",),
    "hermes config set platforms.NAME.home_channel.chat_id ID names the chat for notices.": ("sethome", "set-home"),
    "hermes version prints it.": ("version", "v"),
    "hermes chat --yolo asks nothing for one chat; hermes config set approvals.mode off for all.": ("yolo",),
}
_INSTEAD = {name: advice for advice, names in _FORMS.items() for name in names}
"""Commands of hermes-agent that do not exist here, and what to do instead."""


def unknown(name: str, ctx: CommandContext) -> str:
    """The answer to an unknown command, with the most similar one or skill. It reads the disk."""
    known = table(ctx.surface)
    names = [name for row in known.values() if ctx.person.role in row.roles for name in (row.name, *row.aliases)]
    near = close_names(name[:_LONGEST_NAME], [*names, *knowledge.skill_names(ctx)], most=1, cutoff=0.6)
    hint = _INSTEAD.get(name) or (f"Did you mean /{near[0]}?" if near else "/help lists them.")
    return f"There is no command /{brief(name, 40)}. {hint}"


def _usage(command: SlashCommand) -> str:
    return f"/{command.name} {command.args_hint}".rstrip()


def _described(command: SlashCommand) -> str:
    lines = [f"{_usage(command)} — {command.description}"]
    if command.aliases:
        lines.append(f"Also: {', '.join(f'/{alias}' for alias in command.aliases)}")
    if command.plugin:
        lines.append(f"From the plug-in {command.plugin}.")
    return "\n".join(lines)


def _of_plugin(command: plugins.PluginCommand) -> SlashCommand:
    async def handler(ctx: CommandContext, args: str) -> str | None:
        seconds = ctx.db.limits.plugin_command_ms / 1000
        try:
            if command.wants_context:
                async with asyncio.timeout(seconds):
                    answer = await command.handler(ctx, args)
            else:
                asker = plugins.Asker(str(ctx.person.id), ctx.person.role, ctx.platform)
                facts = {"asker": asker} if command.tells_asker else {}
                answer = await plugins.call_plugin(command.handler, args, seconds=seconds, **facts)
        except HermesError:
            raise
        except Exception as error:  # noqa: BLE001 - boundary: a plug-in's command
            plugins.complain(error, plugin=command.plugin, action="command_failed", command=command.name)
            slow = isinstance(error, TimeoutError)
            why = f"took longer than {seconds:g} s" if slow else f"failed ({type(error).__name__})"
            return f"/{command.name}: the plug-in {command.plugin} {why}."
        return None if answer is None else str(answer)

    return SlashCommand(
        name=command.name,
        category="Plug-ins",
        handler=handler,
        description=command.description or f"from the plug-in {command.plugin}",
        args_hint=command.args_hint,
        roles=command.roles,
        plugin=command.plugin,
    )
