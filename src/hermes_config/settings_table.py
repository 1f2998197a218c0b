"""The rows of the table of settings, in the order of the page; what they are is said in `settings`."""

from __future__ import annotations

from typing import Any, NamedTuple


class Setting(NamedTuple):
    key: str
    kind: str
    default: Any
    """None: there is none, and `about` says what holds then."""
    about: str
    variable: str = ""
    """Of the environment or `.env`; it counts above the file."""
    kept: bool = False


def _s(key: str, kind: str, default: Any, about: str, variable: str = "") -> Setting:
    return Setting(key, kind, default, about, variable)


def _kept(key: str, kind: str) -> Setting:
    return Setting(key, kind, None, "", kept=True)


MODELS = (
    _s("model", "name or section", None, "the model: `anthropic/claude-sonnet-4.6`, `demo`; or a section as below"),
    _s("model.default", "text", None, "the model's id at its provider"),
    _s("model.provider", "text", "auto", "whose it is; without it the id, the address and the keys there are decide"),
    _s("model.base_url", "address", None, "of the model server; without it the provider's own"),
    _s("model.api_key", "secret", None, "better in `.env`, under the provider's own name"),
    _s("model.key_env", "text", None, "the variable that holds the key"),
    _s("model.api_mode", "auto, chat_completions, anthropic_messages", "auto", "the language the server speaks"),
    _s("model.context_length", "tokens", None, "how much fits; without it what is known of the model"),
    _s("model.max_tokens", "tokens", None, "the longest answer; without it the provider decides"),
    _s("model.headers", "section", None, "HTTP headers for every request"),
    _s("model.extra_body", "section", None, "fields for every request"),
    _s("model.vision", "true or false", None, "whether it sees pictures; without it its name decides"),
    _s("models.<name>.context_length", "tokens", None, "the same for one model by its id"),
    _s("models.<name>.price", "section", None, "US dollars for a million tokens, for models we have no price of"),
    _s("models.<name>.price.input", "dollars", None, "what is read"),
    _s("models.<name>.price.output", "dollars", None, "what is written"),
    _s("models.<name>.price.cache_read", "dollars", None, "what is read from the provider's cache"),
    _s("models.<name>.price.cache_write", "dollars", None, "what is written into it"),
    _s("custom_providers", "list or section", None, "model servers of your own: a `name` and keys of `model`"),
    _s("fallback_providers", "list", None, "asked when the model cannot be: `provider/model`, or keys of `model`"),
    _s("fallback_model", "entry", None, "one more, at the end; an older name"),
    _s("demo.tokens_per_second", "number", 30, "how quickly the demo model talks; 0: at once"),
)
AGENT = (
    _s("agent.max_turns", "whole number", 90, "at most so many model steps for one message"),
    _s("agent.api_max_retries", "whole number", 3, "how often a model call that failed is tried again"),
    _s("agent.reasoning_effort", "none, minimal … high, xhigh, max", None, "for providers that take it"),
    _s("agent.disabled_toolsets", "list", None, "tools or toolsets that are never offered"),
    _s("agent.gateway_timeout", "seconds", 1800, "a turn without a sign of life for so long is stopped; 0: never"),
    _s("agent.gateway_auto_continue_freshness", "seconds", 3600, "of an unfinished turn that a start takes up"),
    _s("agent.restart_drain_timeout", "seconds", None, "the older name of `gateway.drain_seconds`"),
    _s("toolsets", "list", ["all"], "the tools and toolsets that are offered"),
    _s("platform_toolsets.<name>", "list", None, "the same for one platform"),
    _s("terminal.timeout", "seconds", None, "of a command that names none; without it `limits.terminal_seconds`"),
    _s("terminal.env_passthrough", "list", None, "further variables that commands see, unless they look like secrets"),
    _s("executor", "confined, bubblewrap, landlock, host", "confined", "what holds commands; `host`: nothing does"),
    _s("terminal.backend", "local", None, "of hermes-agent; `local` means `executor: confined`, others are refused"),
    _s("sandbox.read", "list of folders", None, "further folders that confined commands can read"),
    _s("sandbox.write", "list of folders", None, "further folders that confined commands can write"),
    _s("sandbox.secrets", "list of patterns", None, "further files that commands do not see and file tools ask about"),
    _s("approvals.mode", "manual, off", "manual", "whether a person is asked before something dangerous runs"),
    _s("approvals.timeout", "seconds", 60, "a question nobody answers is a denial"),
    _s("approvals.deny", "list of patterns", None, "commands that never run"),
    _s("approvals.ask", "list of patterns", None, "commands that always ask"),
    _s("command_allowlist", "list of patterns", None, "commands that need no question"),
    _s("auto_title", "true or false", True, "conversations get a title by themselves"),
    _s("context_file_max_chars", "characters", None, "of AGENTS.md and its like in the folder one works in"),
    _s("compression.enabled", "true or false", True, "older parts of long conversations are summarised"),
    _s("compression.threshold", "part", 0.5, "of the context, from which on"),
    _s("compression.target_ratio", "part", 0.2, "how much of the newest stays as it is"),
    _s("compression.protect_first_n", "messages", 3, "the first ones stay"),
    _s("compression.protect_last_n", "messages", 20, "the newest ones stay"),
    _s("compression.abort_on_summary_failure", "true or false", False, "rather no summary than one without a model"),
    _s("memory.memory_char_limit", "characters", 2200, "of what the agent notes for itself"),
    _s("memory.user_char_limit", "characters", 1375, "of what it notes about a person"),
    _s("skills.external_dirs", "list of folders", None, "where else skills are looked for"),
    _s("skills.disabled", "list", None, "skills that are not offered"),
    _s("skills.platform_disabled.<name>", "list", None, "the same for one platform"),
    _s("plugins.enabled", "list", None, "plug-ins that are loaded"),
    _s("plugins.disabled", "list", None, "plug-ins that are not, whatever else is said"),
    _s("hooks.enabled", "list", None, "folders of `<home>/hooks` that are loaded"),
    _s("plugins.entries.<name>", "section", None, "settings of one plug-in, its own"),
    _kept("compression.hygiene_hard_message_limit", "messages"),
    _kept("compression.in_place", "true or false"),
    _kept("memory.provider", "text"),
    _kept("agent.system_prompt", "text"),
    _kept("agent.service_tier", "text"),
    _kept("terminal.cwd", "folder"),
)
STORE = (
    _s("state.database_url", "address", None, "`postgresql://…`; without it `<home>/state.db`", "HERMES_DATABASE_URL"),
    _s("state.synchronous", "full, normal", "full", "`full`: a commit survives a power cut; `normal`: a crash"),
    _s("sessions.auto_prune", "true or false", False, "a gateway removes old ended sessions by itself"),
    _s("sessions.retention_days", "days", 90, "how old they have to be"),
    _s("sessions.min_interval_hours", "hours", 24, "how often at most a gateway tidies up"),
    _s("sessions.vacuum_after_prune", "true or false", True, "give the space back to the disk afterwards"),
    *(
        _s(f"budget.{scope}.{unit}", kind, None, f"at most so much {what}; without it no limit, 0: nothing that costs")
        for scope, what in (("day", "a day"), ("person_day", "a day, by a person"), ("conversation", "in one"))
        for unit, kind in (("usd", "dollars"), ("tokens", "tokens"))
    ),
)  # fmt: skip
SCREENS = (
    _s("display.busy_input_mode", "interrupt, queue, steer", "interrupt", "what a message does while a turn runs"),
    _s("display.tool_progress", "off, new, all, verbose", None, "tool calls; without it what suits the platform"),
    _s("display.tool_preview_length", "characters", 60, "of a call in such a line"),
    _s("display.platforms.<name>.tool_progress", "off, new, all, verbose", None, "the same for one platform"),
    _s("display.platforms.<name>.tool_preview_length", "characters", None, "the same for one platform"),
    _s("display.platforms.<name>.streaming", "true or false", None, "answers are shown while they are made"),
    _s("display.skin", "text", None, "the window's colours: dark, light, or by itself"),
    *(
        _s(f"display.{name}", "text", None, "a wish of terminal clients: kept for them, read by `config.get`")
        for name in ("indicator", "details_mode", "thinking_mode", "compact", "statusbar", "mouse")
    ),
    _s("max_live_sessions", "whole number", None, "beyond it sessions without a client are closed"),
)
GATEWAY = (
    _s("session_reset.mode", "none, idle, daily, both", "none", "when a chat starts over by itself"),
    _s("session_reset.idle_minutes", "minutes", 1440, "after such a pause"),
    _s("session_reset.at_hour", "hour", 4, "at this hour, in the person's zone"),
    _s("session_reset.notify", "true or false", True, "and says so"),
    _s("session_reset.notify_exclude_platforms", "list", ["api_server", "webhook"], "but not there"),
    _s("reset_by_platform.<name>", "section", None, "as `session_reset`, for one platform; counts first"),
    _s("reset_by_type.<name>", "section", None, "as `session_reset`, for `dm`, `group`, `thread` …"),
    _s("timezone", "IANA zone", None, "of people who have set none; without it the system's"),
    _s("session_store_max_age_days", "days", 90, "then a silent place is forgotten, not its talk; 0: never"),
    _s("sessions_dir", "folder", "sessions", "below the home: what places belong to, and where the mirror is"),
    _s("write_sessions_json", "true or false", True, "keep `sessions.json`, a mirror of the places for people"),
    _s("group_sessions_per_user", "true or false", True, "everybody in a group has a conversation of their own"),
    _s("thread_sessions_per_user", "true or false", False, "also in a thread, which otherwise is everybody's"),
    _s("max_concurrent_sessions", "whole number", None, "conversations that may run a turn at once"),
    _s("busy_input_mode", "interrupt, queue, steer", None, "as `display.busy_input_mode`, for the gateway"),
    _s("max_message_age", "seconds", 3600, "older messages found at a start are named, not answered"),
    _s("drain_seconds", "seconds", 30, "how long a stop waits for running turns"),
    _s("media_bytes", "bytes", 20_971_520, "the largest file that is taken from a chat, or sent to one"),
    _s("streaming.enabled", "true or false", None, "answers are shown while they are made, where it can be"),
    _s("streaming.mode", "auto, edit, draft, on, off", None, "another name of `transport`"),
    _s("streaming.transport", "auto, edit, draft, on, off", "auto", "`off` ends it"),
    _s("streaming.edit_interval", "seconds", 0.8, "between two edits, at least"),
    _s("streaming.buffer_threshold", "characters", 24, "before anything is shown"),
    _s("streaming.cursor", "text", " ▉", "behind what is not the end yet"),
    _s("unauthorized_dm_behavior", "pair, ignore", None, "what strangers get in private; ignore where a list is"),
    _s("allowed_users", "list of ids", None, "these may write, on every platform", "GATEWAY_ALLOWED_USERS"),
    _s("allow_all_users", "true or false", False, "everybody may write where no list is", "GATEWAY_ALLOW_ALL_USERS"),
    _s("owners", "list", None, "`telegram:42`: who may do everything"),
    _s("admins", "list", None, "`telegram:42`: who may do nearly everything"),
    _s("approvers", "list", None, "`telegram:42`: who is asked for permission"),
    _s("model_choice.admin", "list", ["*"], "models that admins choose with `/model`, besides the configured"),
    _s("model_choice.member", "list", None, "the same for members; without it the configured ones and fallbacks"),
    _s("group_toolsets", "list", None, "what agents of groups may have at most"),
    _s("multiplex_profiles", "true or false", False, "places of profiles apart", "GATEWAY_MULTIPLEX_PROFILES"),
    _s("api_server.enabled", "true or false", False, "the HTTP API; its key switches it on, too", "API_SERVER_ENABLED"),
    _s("api_server.host", "address", "127.0.0.1", "where it listens", "API_SERVER_HOST"),
    _s("api_server.port", "port", 8642, "0: any that is free", "API_SERVER_PORT"),
    _s("api_server.hosts", "list", None, "names it may be called by, besides loopback's", "API_SERVER_HOSTS"),
    _s("api_server.cors_origins", "list", None, "web pages that may call it", "API_SERVER_CORS_ORIGINS"),
    _s("api_server.model_name", "text", None, "in `/v1/models`; else `hermes-agent`", "API_SERVER_MODEL_NAME"),
    _kept("display.personality", "text"),
    _kept("reset_triggers", "list"), _kept("quick_commands", "section"), _kept("always_log_local", "true or false"),
    _kept("filter_silence_narration", "true or false"), _kept("stt.enabled", "true or false"),
    _kept("stt.echo_transcripts", "true or false"), _kept("stt_enabled", "true or false"),
    _kept("stt_echo_transcripts", "true or false"), _kept("systemd_watchdog_seconds", "seconds"),
    _kept("profile_routes", "list"), _kept("session_reset.bg_process_max_age_hours", "hours"),
    _kept("streaming.fresh_final_after_seconds", "seconds"), _kept("delivery_ledger", "section"),
    _kept("restart_loop_guard", "section"),
)  # fmt: skip
_P = "platforms.<name>"
PLATFORMS = (
    _s(f"{_P}.enabled", "true or false", False, "a token in the environment switches it on, too"),
    _s(f"{_P}.token", "secret", None, "better in `.env`", "TELEGRAM_BOT_TOKEN"),
    _s(f"{_P}.api_key", "secret", None, "better in `.env`"),
    _s(f"{_P}.home_channel", "section", None, "`{chat_id: …}`: for notices", "<PLATFORM>_HOME_CHANNEL"),
    _s(f"{_P}.reply_to_mode", "off, first, all", "first", "answers quote", "<PLATFORM>_REPLY_TO_MODE"),
    _s(f"{_P}.typing_indicator", "true or false", True, "the sign of typing"),
    _s(f"{_P}.allowed_users", "list of ids", None, "these may write", "<PLATFORM>_ALLOWED_USERS"),
    _s(f"{_P}.allow_all_users", "true or false", False, "everybody may", "<PLATFORM>_ALLOW_ALL_USERS"),
    _s(f"{_P}.group_allowed_users", "list of ids", None, "these may, in groups", "<PLATFORM>_GROUP_ALLOWED_USERS"),
    _s(f"{_P}.group_allowed_chats", "list of ids", None, "all may, in these", "<PLATFORM>_GROUP_ALLOWED_CHATS"),
    _s(f"{_P}.allow_bots", "none, mentions, all", "none", "whether bots may", "<PLATFORM>_ALLOW_BOTS"),
    _s(f"{_P}.unauthorized_dm_behavior", "pair, ignore", None, "as above, for one platform"),
    _s(f"{_P}.extra", "section", None, "the adapter's own: `base_url`, `local_mode`, `require_mention` …"),
    _kept(f"{_P}.gateway_restart_notification", "true or false"), _kept(f"{_P}.typing_status_text", "text"),
    _kept(f"{_P}.channel_overrides", "section"),
)  # fmt: skip
AREAS = {
    "Models": MODELS, "The agent": AGENT, "The store": STORE, "Screens": SCREENS, "The gateway": GATEWAY,
    "Platforms": PLATFORMS,
}  # fmt: skip
UNBOUNDED = 2**53
_TOKENS = (0, 999_999_999)
_PRICE = (0.0, 999_999.0)
_SHORTEST = 0.001
BOUNDS: dict[str, tuple[float, float]] = {
    "model.context_length": _TOKENS, "model.max_tokens": _TOKENS, "models.<name>.context_length": _TOKENS,
    **{f"models.<name>.price.{name}": _PRICE for name in ("input", "output", "cache_read", "cache_write")},
    "demo.tokens_per_second": (0.0, UNBOUNDED),
    "agent.max_turns": (1, UNBOUNDED), "agent.api_max_retries": (1, UNBOUNDED),
    "terminal.timeout": (_SHORTEST, UNBOUNDED), "approvals.timeout": (_SHORTEST, 86_400),
    "context_file_max_chars": (500, UNBOUNDED),
    "compression.threshold": (0.05, 0.95), "compression.target_ratio": (0.05, 0.5),
    "compression.protect_first_n": (0, 100), "compression.protect_last_n": (0, 1_000),
    "memory.memory_char_limit": (1, UNBOUNDED), "memory.user_char_limit": (1, UNBOUNDED),
    "display.tool_preview_length": (1, 500), "display.platforms.<name>.tool_preview_length": (1, 500),
    "max_live_sessions": (0, UNBOUNDED),
}  # fmt: skip
"""Of the numbers that an agent or a screen reads. There, one that cannot be is the default or an error much later; so
`hermes config set` refuses it. Where the least is a whole number, only whole ones will do. What the configuration and
the gateway read is checked whenever it is read."""
VARIABLES = {
    "HERMES_HOME": "the home; without it `~/.hermes`",
    "HERMES_DEBUG": "`1`: tracebacks on stderr, debug lines in the log",
    "HERMES_SAFE_MODE": "`1`: no plug-in is loaded",
    "HERMES_PLUGINS_DEBUG": "`1`: every step of loading plug-ins is logged",
    "HERMES_BUNDLED_PLUGINS": "another folder for the plug-ins that came with Hermes",
    "HERMES_ENABLE_PROJECT_PLUGINS": "`1`: also those in `.hermes/plugins` of the folder one works in",
    "HERMES_TUI_RPC_POOL_WORKERS": "threads for requests of terminal clients that may take their time; 8",
    "HERMES_TUI_GATEWAY_SHUTDOWN_GRACE_S": "seconds in which the terminal's server ends; 1",
    "HERMES_TUI_WS_ORPHAN_REAP_GRACE_S": "seconds after which a session whose client has gone is closed; 20, 0: never",
    "HERMES_TUI_SESSION_TTL_S": "seconds after which an idle session without a client is closed in any case; 21600",
    "API_SERVER_KEY": "the client key of the API; made by `hermes api key`",
    "API_SERVER_OWNER_KEY": "its owner key, which is you; made by `hermes api key --role owner`",
    "OLLAMA_HOST": "where Ollama is, for the provider `ollama`",
}
