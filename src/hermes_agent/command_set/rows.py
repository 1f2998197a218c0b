"""Our own slash commands, on one screen. /help is made by the registry itself and stands there."""

from __future__ import annotations

from hermes_agent.command_set import about, conversations, turns
from hermes_agent.command_set.base import EVERYONE, Command

_KNOWN = EVERYONE - {"guest"}

# fmt: off
ROWS = (
    Command(name="new", category="Conversation", handler=conversations.new, aliases=("reset",), args_hint="[title]",
            description="start a new conversation", stops=True),
    Command(name="sessions", category="Conversation", handler=conversations.sessions, args_hint="[words]",
            description="list your conversations", private=True),
    Command(name="resume", category="Conversation", handler=conversations.resume, args_hint="[number, title or id]",
            description="go on with an earlier conversation", private=True, idle=True),
    Command(name="branch", category="Conversation", handler=conversations.branch, aliases=("fork",),
            args_hint="[title]", description="go on in a copy of this conversation", alters="always",
            idle=True),
    Command(name="title", category="Conversation", handler=conversations.title, args_hint="[text]",
            description="show or change the title", alters="with words"),
    Command(name="stop", category="Turns", handler=turns.stop, description="interrupt what is running"),
    Command(name="undo", category="Turns", handler=turns.undo, args_hint="[N]",
            description="take back the last turn, or the last N", alters="always", idle=True),
    Command(name="redo", category="Turns", handler=turns.redo, description="bring back what /undo took",
            alters="always", idle=True),
    Command(name="retry", category="Turns", handler=turns.retry, description="ask the last question again",
            alters="always", idle=True),
    Command(name="compress", category="Turns", handler=turns.compress, aliases=("compact",),
            args_hint="[what matters]", description="summarise the older part now", alters="always", idle=True),
    Command(name="uncompress", category="Turns", handler=turns.uncompress,
            description="undo the last compression; what was said since stays", alters="always", idle=True),
    Command(name="model", category="Settings", handler=about.model, args_hint="[name]", roles=_KNOWN,
            description="show the model, or use another one here", alters="with words"),
    Command(name="tools", category="Settings", handler=about.tools, description="what the model may call here"),
    Command(name="skills", category="Settings", handler=about.skills, roles=_KNOWN,
            description="what the model can look up"),
    Command(name="memory", category="About", handler=about.memory, description="what is remembered of you",
            private=True),
    Command(name="status", category="About", handler=about.status, description="where this conversation stands"),
    Command(name="usage", category="About", handler=about.usage, description="tokens and cost of this conversation"),
    Command(name="whoami", category="About", handler=about.whoami, description="who Hermes takes you for",
            private=True),
    Command(name="timezone", category="About", handler=about.timezone, aliases=("tz",), args_hint="[Area/City]",
            description="show or set your time zone", private=True),
)
# fmt: on
