"""Every method that can be called: what it takes and what it gives. A method that is not here cannot be called."""

from __future__ import annotations

from tui_gateway.protocol.schema import MethodParam, RpcMethod


def _sid(about: str = "the live id that session.create or session.resume gave") -> MethodParam:
    return MethodParam("session_id", "text", about, required=True)


_COLS = MethodParam("cols", "number", "columns of the client's screen; 80")
_TOOLSETS = MethodParam("toolsets", "list", "only these tools or toolsets")
_MAX_TURNS = MethodParam("max_turns", "number", "at most so many model steps for one prompt")
_DETAILS = MethodParam("details", "flag", "tool messages with what came out of the tool, as `text`")
_CLOSE = MethodParam("close_on_disconnect", "flag", "close the session when this connection ends")

METHODS: dict[str, RpcMethod] = {
    "session.create": RpcMethod(
        about="A new conversation. Nothing is stored before the first prompt.",
        params=(
            _COLS,
            MethodParam("title", "text", "given to it with the first answer"),
            MethodParam("cwd", "text", "where tools work"),
            MethodParam("model", "text"),
            MethodParam("provider", "text"),
            MethodParam("messages", "list", "what was said before, role and content"),
            MethodParam("source", "text", "the kind of client; tui"),
            _TOOLSETS,
            _MAX_TURNS,
            _CLOSE,
        ),
        result="session_id, stored_session_id, message_count, messages, info",
        errors=(4004, 4090),
    ),
    "session.resume": RpcMethod(
        about="Go on with a stored conversation, at its newest segment. One that is live here keeps its live id.",
        params=(
            _sid("a stored id, the beginning of one, or a title"),
            _COLS,
            MethodParam("source", "text"),
            _TOOLSETS,
            _MAX_TURNS,
            MethodParam("own_turns", "flag", "run its turns in this process, also where a gateway serves it"),
            MethodParam("limit", "number", "only the newest so many messages"),
            _DETAILS,
            _CLOSE,
        ),
        result="session_id, resumed, session_key, message_count, first, messages, info, inflight, queued, "
        "waiting (prompts whose turn has not begun), running, status, started_at, driver",
        errors=(4006, 4007, 4090, 5000, 5001),
        pooled=True,
    ),
    "session.list": RpcMethod(
        about="Conversations, newest activity first.",
        params=(
            MethodParam("limit", "number", "200"),
            MethodParam("query", "text", "words of the title or id"),
            MethodParam(
                "deep",
                "flag",
                "also those in which the words were said (`found`, from `found_at` on), and what branched from what",
            ),
        ),
        result="sessions: list of {id, title, preview, started_at, last_active, message_count, source, found?, "
        "found_at?, branch_of?}",
        errors=(5001,),
        pooled=True,
    ),
    "session.most_recent": RpcMethod(
        about="The conversation used last.",
        result="session_id (null when there is none), title, started_at, source",
        errors=(5001,),
    ),
    "session.active_list": RpcMethod(
        about="The sessions that are live in this process.",
        params=(MethodParam("current_session_id", "text"),),
        result=(
            "sessions: list of {id, session_key, title, preview, status, model, current, message_count, "
            "started_at, last_active}"
        ),
        pooled=True,
    ),
    "session.activate": RpcMethod(
        about="Look at a live session from this connection, too.",
        params=(_sid(), _COLS),
        result="as session.resume",
        errors=(4001,),
        pooled=True,
    ),
    "session.close": RpcMethod(
        about="End the live session; the conversation stays.", params=(_sid(),), result="closed"
    ),
    "session.history": RpcMethod(
        about="The whole conversation for a screen, also what was compressed. Files that went along with a message "
        "are named in its `files`, the chat it came from in `source`; an answer that is not whole says in `cut_off` "
        "what stopped it (interrupted, error).",
        params=(
            _sid(),
            MethodParam("before", "number", "only messages before this one, counted from 0"),
            MethodParam("limit", "number", "only the last so many of them"),
            _DETAILS,
        ),
        result="count, first (the number of the first that is given), messages",
        errors=(4001, 5001),
    ),
    "session.title": RpcMethod(
        about="The title, or another one. Before the first answer it is kept for then (`pending`).",
        params=(_sid(), MethodParam("title", "text")),
        result="title, session_key; when set also pending",
        errors=(4001, 4021, 4022),
    ),
    "session.usage": RpcMethod(
        about="Tokens and cost so far.",
        params=(_sid(),),
        errors=(4001,),
        pooled=True,
        result=(
            "model, calls, input, output, reasoning, prompt, completion, total, today, cost_usd?, compressions?, "
            "context_used?, context_max?, context_percent?"
        ),
    ),
    "session.status": RpcMethod(
        about="Where the conversation stands, as text.", params=(_sid(),), result="output", errors=(4001,), pooled=True
    ),
    "session.compress": RpcMethod(
        about="Summarise the older part now.",
        params=(_sid(), MethodParam("focus_topic", "text", "what matters")),
        pooled=True,
        result=(
            "status (compressed, aborted), removed, before_messages, after_messages, before_tokens, after_tokens, "
            "summary {headline, token_line, aborted}, usage, info, first, messages"
        ),
        errors=(4001, 4009, 5001),
    ),
    "session.undo": RpcMethod(
        about="Take back the last turn; nothing is deleted.",
        params=(_sid(),),
        result="removed, text",
        errors=(4001, 4009, 5001),
    ),
    "session.branch": RpcMethod(
        about="A copy to go on with, live at once; the original stays as it is.",
        params=(_sid(), MethodParam("name", "text", "its title")),
        result="session_id, stored_session_id, title, parent",
        errors=(4001, 4008, 4022, 4090, 5001),
        pooled=True,
    ),
    "session.delete": RpcMethod(
        about="Erase a stored conversation that is not live and that nobody is at work on.",
        params=(_sid("a stored id"),),
        result="deleted",
        errors=(4006, 4007, 4009, 4023, 5001),
    ),
    "session.save": RpcMethod(
        about="Write the conversation to a file below the home.", params=(_sid(),), result="file", errors=(4001, 5001)
    ),
    "session.steer": RpcMethod(
        about="A word for the turn that runs.",
        params=(_sid(), MethodParam("text", "text", required=True)),
        result="status (queued, rejected), text",
        errors=(4001, 4004),
    ),
    "session.take_up": RpcMethod(
        about="Go on with what a lost process left, its turn and its prompts, now and not with the next prompt.",
        params=(_sid(),),
        result="status (streaming; elsewhere: another process has it; idle: there is none, or the gateway takes it up)",
        errors=(4001,),
    ),
    "session.interrupt": RpcMethod(
        about="Stop the turn that runs and forget what waits; what was done is kept.",
        params=(_sid(), MethodParam("only_waiting", "flag", "let the turn run on")),
        result="status",
        errors=(4001,),
    ),
    "terminal.resize": RpcMethod(
        about="The client's screen has another width.", params=(_sid(), _COLS), result="cols", errors=(4001,)
    ),
    "prompt.submit": RpcMethod(
        about=(
            "Say something. It is stored when this is answered; what comes of it comes as events. While a turn runs, "
            "display.busy_input_mode decides: "
            "steer, queue or interrupt. What the text names with `@` goes along: `@notes.md`, `@notes.md:10-20`, "
            '`@"two words.txt"`, `@src/`; a file that cannot go along refuses the prompt (4004).'
        ),
        params=(
            _sid(),
            MethodParam(
                "text",
                "any",
                "text, or a list of content parts: {type: text, text}, {type: image_url, image_url: {url: data:…}}",
                required=True,
            ),
            MethodParam(
                "truncate_before_user_ordinal",
                "number",
                "edit and resend: forget from this user message on, counted from 0",
            ),
        ),
        result="status (streaming, queued, steered), driver (here, gateway), files? (what went along)",
        errors=(4001, 4004, 4009, 4018),
    ),
    "approval.respond": RpcMethod(
        about="Answer the oldest open question of permission, or all.",
        params=(
            _sid(),
            MethodParam("choice", "text", "task, once, session (the conversation), always or deny; deny"),
            MethodParam("all", "flag"),
            MethodParam("approval_id", "text", "this one"),
        ),
        result="resolved",
        errors=(4001, 4004),
    ),
    "clarify.respond": RpcMethod(
        about="Answer clarify.request.",
        params=(MethodParam("request_id", "text", required=True), MethodParam("answer", "text")),
        result="status",
        errors=(4009,),
    ),
    "sudo.respond": RpcMethod(
        about="For clients of hermes-agent: Hermes asks for no password.",
        params=(MethodParam("request_id", "text", required=True), MethodParam("password", "text")),
        result="status (expired)",
    ),
    "secret.respond": RpcMethod(
        about="For clients of hermes-agent: Hermes asks for no secret.",
        params=(MethodParam("request_id", "text", required=True), MethodParam("value", "text")),
        result="status (expired)",
    ),
    "slash.exec": RpcMethod(
        about="Run a slash command in a session.",
        params=(_sid(), MethodParam("command", "text", "with or without its /", required=True)),
        pooled=True,
        result=(
            "output, message? (send it as a prompt), prefill? (put it where the person types), session? (as "
            "session.resume: the session shows another conversation)"
        ),
        errors=(4001, 4011),
    ),
    "command.dispatch": RpcMethod(
        about="A slash command by its name.",
        params=(MethodParam("name", "text", required=True), MethodParam("arg", "text"), _sid()),
        pooled=True,
        result="type (exec, send, prefill), output, message?, notice?",
        errors=(4001, 4011),
    ),
    "command.resolve": RpcMethod(
        about="The command of a name or alias.",
        params=(MethodParam("name", "text", required=True),),
        result="canonical, description, category",
        errors=(4011,),
    ),
    "commands.catalog": RpcMethod(
        about="All commands.",
        result=(
            "pairs [[name, description]], categories [{name, pairs}], canon {alias: name}, sub, skill_count, warning"
        ),
    ),
    "complete.slash": RpcMethod(
        about="Commands that begin so.",
        params=(MethodParam("text", "text", required=True),),
        result="items [{text, display, meta}], replace_from",
        pooled=True,
    ),
    "complete.path": RpcMethod(
        about='Files that begin so; `@` and `@file:` before the path stay, and `@"` around one with spaces.',
        pooled=True,
        result="items [{text, display, meta}], replace_from",
        params=(
            MethodParam("word", "text", required=True),
            MethodParam("session_id", "text"),
            MethodParam("cwd", "text"),
        ),
    ),
    "config.get": RpcMethod(
        about="A setting: model, provider, busy, reasoning, verbose, skin, approvals.mode, yolo, cwd, mtime, full …",
        params=(MethodParam("key", "text", required=True), MethodParam("session_id", "text")),
        result="key, value",
        errors=(4002, 4001),
    ),
    "config.set": RpcMethod(
        about="Change one. The model of a session is for that session unless scope is global.",
        params=(
            MethodParam("key", "text", required=True),
            MethodParam("value", "any", required=True),
            MethodParam("session_id", "text"),
            MethodParam("scope", "text"),
        ),
        result="key, value, scope?",
        errors=(4001, 4002, 4004, 4009),
    ),
    "model.options": RpcMethod(
        about="The providers that are set up, and the model in use.",
        params=(MethodParam("session_id", "text"), MethodParam("include_unconfigured", "flag")),
        result="model, provider, providers [{name, configured, current, models}]",
        errors=(4001,),
        pooled=True,
    ),
    "tools.list": RpcMethod(
        about="All tools.", result="tools [{name, toolset, state (on, off, not set up), description}]", pooled=True
    ),
    "toolsets.list": RpcMethod(about="Groups of tools.", result="toolsets [{name, tools, enabled}]", pooled=True),
    "skills.manage": RpcMethod(
        about="Skills, or one of them.",
        params=(MethodParam("action", "text", "list or inspect; list"), MethodParam("query", "text", "which one")),
        result=(
            "skills? [{name, category, description}], problems?, skill? {name, category, description, content, files}"
        ),
        errors=(4004,),
        pooled=True,
    ),
    "plugins.list": RpcMethod(about="Plug-ins.", result="plugins [{name, status, reason}]", pooled=True),
    "session.cwd.set": RpcMethod(
        about="Tools of this session work in another folder.",
        params=(_sid(), MethodParam("cwd", "text", "the folder", required=True)),
        result="cwd",
        errors=(4001, 4004, 4009),
        pooled=True,
    ),
    "setup.status": RpcMethod(about="Whether a model can be asked.", result="provider_configured", pooled=True),
    "setup.runtime_check": RpcMethod(
        about="Which model would be asked, or why none.",
        params=(MethodParam("provider", "text"),),
        result="ok, provider, model, source, error?",
        pooled=True,
    ),
}
