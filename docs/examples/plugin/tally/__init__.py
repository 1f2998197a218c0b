"""An example of everything a plug-in usually does: hooks, a tool, a slash command, a command line, settings.

Copy the folder to `<home>/plugins/tally`, then `hermes plugins enable tally`. In config.yaml:

    plugins:
      enabled: [tally]
      entries:
        tally:
          keep_out: /srv/photos
"""

import threading
from collections import Counter

_seen = Counter()
_lock = threading.Lock()  # hooks are called from several threads


def register(ctx):
    """Called once, when Hermes starts. An exception here unloads this plug-in and nothing else."""
    keep_out = ctx.settings.get("keep_out", "")

    def guard(tool_name, args, **facts):
        """Veto calls that name the folder; the model reads the message."""
        if keep_out and keep_out in str(args):
            return {"action": "block", "message": f"{keep_out} is off limits. Ask the person for another way."}
        return None

    ctx.register_hook("pre_tool_call", guard)
    ctx.register_hook("post_tool_call", count_tool)
    ctx.register_hook("on_session_end", count_turn)
    ctx.register_hook("pre_llm_call", mention)
    ctx.register_tool(
        name="count_words",
        toolset="tally",
        schema={
            "description": "Count the words of a text.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "What to count."}},
                "required": ["text"],
            },
        },
        handler=count_words,
    )
    ctx.register_command("tally", tally, description="what was counted since Hermes started", args_hint="[reset]")
    ctx.register_cli_command("tally", "count the words of a text", setup, run)


def count_tool(tool_name, status="ok", **facts):
    """Hooks get keywords only, and more of them may come: always take **facts."""
    with _lock:
        _seen[f"tool {tool_name} {status}"] += 1


async def count_turn(**facts):
    """A callback may be a coroutine function."""
    with _lock:
        _seen["turns"] += 1


def mention(user_message, **facts):
    """What is returned here is added to the person's message, for the model alone."""
    return "The person has asked for brevity." if "short" in str(user_message).lower() else None


def count_words(args, **facts):
    """A tool gets the model's arguments, checked against the schema, and returns text or JSON-able data."""
    return {"words": len(args["text"].split())}


def tally(args):
    """/tally: a text is the answer, None is silence."""
    with _lock:
        if args == "reset":
            _seen.clear()
        return "\n".join(f"{name}: {count}" for name, count in sorted(_seen.items())) or "Nothing was counted yet."


def setup(parser):
    """The arguments of `hermes tally`."""
    parser.add_argument("text", nargs="+")


def run(args):
    """`hermes tally some words`. A returned number is the exit code."""
    print(len(args.text))
