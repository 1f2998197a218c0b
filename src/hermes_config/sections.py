"""Every setting of config.yaml, declared once: default, kind, bounds, and one line for the manual.

`Settings` are the keys that an agent, a terminal client or the store reads; they are fields of `Config`. The keys of
`GatewaySettings`, `Access` and `Platforms` are read by the gateway (`gateway.config`, `gateway.access.policy`) and may
also stand under `gateway:`. Every limit is a key under `limits:` (`limits`). A setting with `restart` takes effect
when the gateway or the terminal client is started again, every other one at the next turn.
"""

# A table: one line for a setting, as far as it fits.
# fmt: off

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from hermes_config.home import hermes_home
from hermes_config.limits import DEFAULTS, Limits
from hermes_config.schema import (
    YEAR,
    Anything,
    Choice,
    Each,
    Flag,
    Ids,
    Kind,
    Money,
    MutableSection,
    Names,
    Number,
    Part,
    Patterns,
    PlainText,
    Section,
    SettingsTable,
    Tokens,
    Unfit,
    Unused,
    Whole,
    part,
    setting,
    shown,
)

DATABASE_SCHEMES = ("sqlite:///", "postgresql://", "postgres://")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
EXECUTORS = ("confined", "bubblewrap", "landlock", "host")
PLUGIN = "plugin:"
"""The prefix of a plug-in executor's name."""
TOOL_LINES = ("off", "new", "all", "verbose")
_API_MODES = {"chat": "chat_completions", "openai": "chat_completions", "anthropic": "anthropic_messages"}
_SHORTEST = 0.001
_DAY = 86_400
Scope = Literal["day", "month", "person_day", "person_month", "conversation"]
SCOPES: tuple[Scope, ...] = ("day", "month", "person_day", "person_month", "conversation")
BusyMode = Literal["interrupt", "queue", "steer"]

# -- models --------------------------------------------------------------------------------------------------------


class ModelSection(Section):
    """`model:`. How it becomes an endpoint is in `hermes_agent.models.providers`."""

    default: Any = setting(None, Anything("text"), "the model's id at its provider")
    provider: Any = setting("auto", Anything("text"), "its provider; else the id, the address and the keys decide")
    base_url: Any = setting(None, Anything("address"), "of the model server; without it the provider's own")
    api_key: Any = setting(None, Anything("secret"), "better in `.env`, under the provider's own name", repr=False)
    key_env: Any = setting(None, Anything("text"), "the variable that holds the key")
    api_mode: Any = setting(
        "auto", Choice("auto", "chat_completions", "anthropic_messages", spelt=_API_MODES),
        "the wire format of the server")
    context_length: int | None = setting(None, Tokens(), "the context window; else the model's known window")
    max_tokens: int | None = setting(None, Tokens(), "the longest answer; without it the provider decides")
    headers: Any = setting(None, Anything("section"), "HTTP headers for every request", repr=False)
    extra_body: Any = setting(None, Anything("section"), "fields for every request")
    vision: bool | None = setting(None, Flag(), "whether it sees pictures; without it its name decides")


_PRICE = Number(0.0, 999_999.0, "dollars")


class PriceSection(Section):
    input: float | None = setting(None, _PRICE, "input tokens")
    output: float | None = setting(None, _PRICE, "output tokens")
    cache_read: float | None = setting(None, _PRICE, "input read from the provider's cache")
    cache_write: float | None = setting(None, _PRICE, "input written to that cache")


class ModelFacts(Section):
    """`models.<id>:`"""

    context_length: int | None = setting(None, Tokens(), "the same for one model by its id")
    price: PriceSection | None = setting(
        None, Part(PriceSection), "US dollars for a million tokens; without it the list price, if one is known")


class DemoSection(Section):
    tokens_per_second: float = setting(30.0, Number(0.0), "the speed of the demo model; 0: no delay")


# -- the agent -----------------------------------------------------------------------------------------------------


_TOOLSETS = Names(instead=())
"""An unreadable list offers no tools, rather than all."""


class AgentSection(Section):
    max_turns: int = setting(90, Whole(1), "at most so many model steps for one message", area="The agent")
    api_max_retries: int = setting(3, Whole(0), "how often a model call that failed is tried again; 0: never")
    reasoning_effort: str | None = setting(None, Choice(*EFFORTS, spelt={False: "none"}), "for models at OpenRouter")
    disabled_toolsets: tuple[str, ...] = setting((), Names(), "tools or toolsets that are never offered")


class TerminalSection(Section):
    timeout: float | None = setting(
        None, Number(_SHORTEST, name="seconds"), "of a command that names none; without it `limits.terminal_seconds`")
    env_passthrough: tuple[str, ...] = setting((), Names(), "further variables that commands see, except secrets")
    backend: str | None = setting(
        None, PlainText("local"), "of hermes-agent; `local` means `executor: confined`, others must be acknowledged")


class SandboxSection(Section):
    read: tuple[str, ...] = setting((), Patterns("list of folders"), "further folders that confined commands can read")
    write: tuple[str, ...] = setting(
        (), Patterns("list of folders"), "further folders that confined commands can write")
    secrets: tuple[str, ...] = setting(
        (), Patterns(), "further files that commands do not see and file tools ask about")


class _ApprovalMode(Choice):
    def read(self, raw: Any) -> str | None:
        """Any unknown mode is read as `manual`, which asks."""
        if str(raw).strip().lower() == "smart":
            raise Unfit("smart is read as manual: no model decides here, a person does", use="manual")
        try:
            return super().read(raw)
        except Unfit as unfit:
            raise Unfit(f"{unfit.reason}; manual is used", use="manual") from None


class ApprovalsSection(Section):
    mode: Literal["manual", "off"] = setting(
        "manual", _ApprovalMode("manual", "off"), "whether a person is asked before something dangerous runs")
    timeout: float = setting(
        60.0, Number(_SHORTEST, _DAY, "seconds"), "how long a turn waits for an answer; then it counts as no, or, in "
        "a chat, the turn is suspended")
    open_hours: float = setting(
        24.0, Number(0, 24 * 365, "hours"), "how long a question in a chat stays open; 0: as long as `timeout`")
    deny: tuple[str, ...] = setting((), Patterns(), "commands that never run")
    ask: tuple[str, ...] = setting((), Patterns(), "commands that always ask")
    targets: Mapping[str, tuple[str, ...]] = setting(
        dict, Each(Patterns("list of arguments")), "the arguments of a tool (name or pattern) that say whom or what it "
        "reaches; an empty list: none")


class CompressionSection(Section):
    enabled: bool = setting(True, Flag(), "older parts of long conversations are summarised")
    threshold: float = setting(
        0.5, Number(0.05, 0.95, "part"), "the filled part of the window that starts it; at least 0.75 "
        "below 512,000 tokens")
    target_ratio: float = setting(0.2, Number(0.05, 0.5, "part"), "the newest part that stays unchanged")
    protect_first_n: int = setting(3, Whole(0, 100, "messages"), "so many first messages stay")
    protect_last_n: int = setting(20, Whole(0, 1_000, "messages"), "so many newest messages stay, at most 8")
    abort_on_summary_failure: bool = setting(False, Flag(), "do not compress if the model cannot summarise")


class DelegationSection(Section):
    max_depth: int = setting(1, Whole(0, 3, "levels"), "whether children may delegate too; 0: no delegation at all")
    max_concurrent_children: int = setting(5, Whole(1, 50), "how many children of a conversation work at the same time")
    max_children: int = setting(20, Whole(1, 100), "how many children one call may have, and a conversation at work")
    wait_seconds: float = setting(
        900.0, Number(0, _DAY, "seconds"), "how long a call waits for its children; later results come as a message")
    budget_usd: float | None = setting(None, Money(1_000_000_000), "what one child may spend; without it no limit")


class SpeechSection(Section):
    """`stt:` (speech to text)."""

    enabled: bool = setting(True, Flag(), "voice messages become text, if a command or a server is named")
    command: str | None = setting(
        None, PlainText("command"), "prints the words of `{file}`; it runs in the sandbox, in a folder with that file")
    base_url: str | None = setting(
        None, PlainText("address"), "of a server with OpenAI's `/audio/transcriptions`, such as `http://127.0.0.1:8000/v1`")
    model: str = setting("whisper-1", PlainText("name"), "its model")
    language: str | None = setting(None, PlainText("code"), "what people speak, such as `en`; else it finds out")
    key_env: str = setting("STT_API_KEY", PlainText("variable"), "holds its key, which is sent to `base_url` alone")
    timeout: float = setting(60.0, Number(1.0, 600.0, "seconds"), "how long a message waits for its words")
    usd_per_message: float | None = setting(
        None, Number(0.0, 100.0, "dollars"), "the most that one costs; for a server elsewhere, if spending is limited")


class MemorySection(Section):
    memory_char_limit: int = setting(2_200, Whole(1, name="characters"), "the size of the agent's own notes")
    user_char_limit: int = setting(1_375, Whole(1, name="characters"), "the size of its notes about a person")
    write_approval: bool = setting(False, Flag(), "every change by the model waits for the person's yes")
    nudge_interval: int = setting(
        0, Whole(0, 10_000, "turns"), "after so many turns the model looks back and proposes what to keep; 0: never")


class SkillsSection(Section):
    external_dirs: tuple[str, ...] = setting((), Patterns("list of folders"), "further folders of skills")
    disabled: tuple[str, ...] = setting((), Names(), "skills that are not offered")
    platform_disabled: Mapping[str, tuple[str, ...]] = setting(dict, Each(Names()), "the same for one platform")


class PluginsSection(Section):
    enabled: tuple[str, ...] = setting((), Names(), "plug-ins that are loaded", restart=True)
    disabled: tuple[str, ...] = setting((), Names(), "plug-ins that are not loaded, whatever else is set", restart=True)
    entries: Mapping[str, Any] = setting(dict, Each(Anything("section")), "a plug-in's own settings", restart=True)


class _Arguments(Kind):
    """The arguments of a program: a list of words, each as it stands."""

    name = "list of words"

    def read(self, raw: Any) -> tuple[str, ...]:
        items = raw if isinstance(raw, list | tuple) else (raw,)
        if any(isinstance(item, Mapping | list | tuple) or item is None for item in items):
            raise Unfit("must be a list of words")
        return tuple(str(item) for item in items)


class McpToolsSection(Section):
    include: tuple[str, ...] = setting((), Names(), "only these tools of the server (`*` stands for anything)")
    exclude: tuple[str, ...] = setting((), Names(), "never these")
    resources: bool = setting(True, Flag(), "a tool that lists and reads its resources")
    prompts: bool = setting(True, Flag(), "a tool that lists and reads its prompts")


class McpServerSection(Section):
    """`mcp_servers.<name>`: a program that is started, or an address that is called. `hermes mcp add` writes it."""

    command: str | None = setting(None, PlainText("program"), "the program of a server that runs here, confined")
    args: tuple[str, ...] = setting((), _Arguments(), "its arguments")
    env: Mapping[str, Any] = setting(
        dict, Anything("section"), "its variables; `${NAME}` stands for one of `.env`", repr=False)
    needs: tuple[str, ...] = setting(
        (), Patterns("list"), "what its confinement lets through: `network`, `/folder`, `read:/folder`, `host`")
    url: str | None = setting(None, PlainText("address"), "of a server that is called (streamable HTTP)")
    headers: Mapping[str, Any] = setting(dict, Anything("section"), "HTTP headers for it, with `${NAME}`", repr=False)
    auth: str | None = setting(None, Choice("oauth"), "`oauth`: `hermes mcp login NAME` logs in")
    enabled: bool = setting(True, Flag(), "whether it is used")
    timeout: float = setting(120.0, Number(1, _DAY, "seconds"), "for one call; `limits.tool_seconds` counts too")
    connect_timeout: float = setting(60.0, Number(1, 3_600, "seconds"), "until it has started and told its tools")
    tools: McpToolsSection = part(McpToolsSection, "near")


class HooksSection(Section):
    enabled: tuple[str, ...] = setting((), Names(), "folders of `<home>/hooks` that are loaded", restart=True)


# -- the store -----------------------------------------------------------------------------------------------------


class _DatabaseUrl(PlainText):
    """A database address; it may hold a password, so an error never shows it."""

    def read(self, raw: Any) -> str | None:
        if raw == "":
            return None
        if not isinstance(raw, str) or not raw.startswith(DATABASE_SCHEMES):
            raise Unfit(f"must start with {' or '.join(DATABASE_SCHEMES)}")
        return raw


class StateSection(Section):
    """The store of conversations, and the durability of its commits."""

    database_url: str | None = setting(
        None, _DatabaseUrl("address"), "`postgresql://…`; without it `<home>/state.db`",
        variable="HERMES_DATABASE_URL", restart=True, area="The store", repr=False)
    synchronous: Literal["full", "normal"] = setting(
        "full", Choice("full", "normal"), "`full`: a commit survives a power cut; `normal`: a crash", restart=True)


class SessionsSection(Section):
    """What maintenance removes automatically."""

    auto_prune: bool = setting(False, Flag(), "a gateway removes old ended sessions by itself")
    retention_days: int = setting(90, Whole(1, name="days"), "the age at which they are removed")
    min_interval_hours: int = setting(24, Whole(0, name="hours"), "the shortest pause between two removals")
    vacuum_after_prune: bool = setting(True, Flag(), "give the space back to the disk afterwards")


class Allowance(Section):
    """The spending limit of one scope; None for no limit."""

    usd: float | None = setting(
        None, Money(1_000_000_000), "at most so much; without it no limit, 0: nothing that costs")
    tokens: int | None = setting(None, Whole(0, 10**15, "tokens"), "at most so many; without it no limit")


class BudgetSection(Section):
    """The spending limits: for everybody or one person, by day or month; and for one conversation."""

    day: Allowance = part(Allowance, "closed")
    month: Allowance = part(Allowance, "closed")
    person_day: Allowance = part(Allowance, "closed")
    person_month: Allowance = part(Allowance, "closed")
    conversation: Allowance = part(Allowance, "closed")
    ask_usd: float | None = setting(
        None, Money(1_000_000_000), "a model call that could cost more asks first; without it none does")

    def of(self, scope: Scope) -> Allowance:
        found: Allowance = getattr(self, scope)
        return found

    @property
    def limits_money(self) -> bool:
        return any(self.of(scope).usd is not None for scope in SCOPES)

    @property
    def money_key(self) -> str:
        """The first setting that needs prices; empty if none does."""
        limits = (f"budget.{scope}.usd" for scope in SCOPES if self.of(scope).usd is not None)
        return next(limits, "" if self.ask_usd is None else "budget.ask_usd")


# -- screens -------------------------------------------------------------------------------------------------------

_LINES = Choice(*TOOL_LINES)
_PREVIEW = Whole(1, 500, "characters")
_BUSY = Choice("interrupt", "queue", "steer")
_CLIENTS = "kept for terminal clients, which read it with `config.get`"


class PlatformDisplay(Section):
    tool_progress: str | None = setting(None, _LINES, "the same for one platform")
    tool_preview_length: int | None = setting(None, _PREVIEW, "the same for one platform")
    streaming: bool | None = setting(None, Flag(), "answers are shown while they are made")


class DisplaySection(Section):
    busy_input_mode: BusyMode = setting("interrupt", _BUSY, "what a message does while a turn runs", area="Screens")
    tool_progress: str | None = setting(None, _LINES, "tool calls; without it what suits the platform")
    tool_preview_length: int = setting(60, _PREVIEW, "the length of a call in such a line")
    platforms: Mapping[str, PlatformDisplay] = setting(dict, Each(Part(PlatformDisplay)))
    skin: str | None = setting(None, PlainText(), "the window's colours: dark, light, or by itself", restart=True)
    indicator: Any = setting(None, Anything("text"), _CLIENTS)
    details_mode: Any = setting(None, Anything("text"), _CLIENTS)
    thinking_mode: Any = setting(None, Anything("text"), _CLIENTS)
    compact: Any = setting(None, Anything("text"), _CLIENTS)
    statusbar: Any = setting(None, Anything("text"), _CLIENTS)
    mouse: Any = setting(None, Anything("text"), _CLIENTS)


_ENTRY = Anything("entry")


class AuxiliarySection(Section):
    """Models for calls beside the conversation: `provider/model`, or keys of `model`. See `models.providers`."""

    default: Any = setting(None, _ENTRY, "for titles, summaries and reviews; else the conversation's model")
    title: Any = setting(None, _ENTRY, "names conversations")
    compression: Any = setting(None, _ENTRY, "writes the summary of a compression")
    review: Any = setting(None, _ENTRY, "looks over finished turns")
    vision: Any = setting(None, _ENTRY, "describes pictures to a model that does not see")


class WebSection(Section):
    """`web:`. Who is asked for a search is decided in `hermes_agent.web.search`."""

    search_backend: str | None = setting(
        None, PlainText(), "`searxng`, `brave` or a plug-in's; without it the first one that is configured",
        area="The web")
    searxng_url: str | None = setting(
        None, PlainText("address"), "your SearXNG, for `web_search`; a private address is fine", variable="SEARXNG_URL")
    private_hosts: tuple[str, ...] = setting(
        (), Patterns("list of hosts"), "private hosts that may be fetched: `nas.lan`, `192.168.1.5:8080`")
    proxy: str | None = setting(
        None, PlainText("address"), "an http proxy for web pages; `HTTP_PROXY` and its like are not read", repr=False)


class BlocklistSection(Section):
    enabled: bool = setting(False, Flag(), "websites on the list are not fetched")
    domains: tuple[str, ...] = setting((), Patterns("list of hosts"), "the list; a name also covers all names below it")


class SecuritySection(Section):
    website_blocklist: BlocklistSection = part(BlocklistSection)


class Settings(Section):
    """The keys at the top of config.yaml, but for the gateway's."""

    model: ModelSection = setting(
        ModelSection, Part(ModelSection, bare="default", name="name or section"),
        "the model: `anthropic/claude-sonnet-4.6`, `demo`; or a section as below", area="Models")
    models: Mapping[str, ModelFacts] = setting(dict, Each(Part(ModelFacts)))
    custom_providers: Any = setting(
        None, Anything("list or section"), "model servers of your own: a `name` and keys of `model`")
    fallback_providers: Any = setting(
        None, Anything("list"), "asked when the model cannot be: `provider/model`, or keys of `model`")
    fallback_model: Any = setting(None, Anything("entry"), "one more, at the end; an older name")
    auxiliary: AuxiliarySection = part(AuxiliarySection)
    demo: DemoSection = part(DemoSection)

    agent: AgentSection = part(AgentSection)
    toolsets: tuple[str, ...] | None = setting(None, _TOOLSETS, "the tools and toolsets that are offered; else all")
    platform_toolsets: Mapping[str, tuple[str, ...]] = setting(dict, Each(_TOOLSETS), "the same for one platform")
    executor: str = setting(
        "confined", Choice(*EXECUTORS, also=(re.compile(rf"{PLUGIN}[a-z0-9][a-z0-9_-]{{0,31}}"), f"{PLUGIN}NAME")),
        "what holds commands; `host`: nothing does; `plugin:NAME`: the executor of a plug-in")
    terminal: TerminalSection = part(TerminalSection)
    sandbox: SandboxSection = part(SandboxSection)
    approvals: ApprovalsSection = part(ApprovalsSection)
    command_allowlist: tuple[str, ...] = setting((), Patterns(), "exact commands that need no question")
    auto_title: bool = setting(True, Flag(), "conversations get a title by themselves")
    context_file_max_chars: int | None = setting(
        None, Whole(500, name="characters"), "of AGENTS.md and its like in the folder one works in")
    compression: CompressionSection = part(CompressionSection)
    delegation: DelegationSection = part(DelegationSection)
    stt: SpeechSection = part(SpeechSection)
    memory: MemorySection = part(MemorySection)
    skills: SkillsSection = part(SkillsSection)
    web: WebSection = part(WebSection)
    security: SecuritySection = part(SecuritySection)
    plugins: PluginsSection = part(PluginsSection)
    hooks: HooksSection = part(HooksSection)
    mcp_servers: Mapping[str, McpServerSection] = setting(dict, Each(Part(McpServerSection)), area="MCP servers")
    acknowledged: tuple[str, ...] = setting(
        (), Patterns("list of names"), "what `hermes config check` calls unsafe to ignore, accepted by name")

    state: StateSection = part(StateSection, "near")
    sessions: SessionsSection = part(SessionsSection, "near")
    budget: BudgetSection = part(BudgetSection, "closed")
    limits: Limits = setting(lambda: DEFAULTS, Part(Limits, "closed"), restart=True)

    display: DisplaySection = part(DisplaySection)
    max_live_sessions: int | None = setting(
        None, Whole(0), "beyond it sessions without a client are closed", also=("gateway.max_live_sessions",))


# -- the gateway ---------------------------------------------------------------------------------------------------


class SessionResetPolicy(MutableSection):
    """When a chat starts a new conversation by itself: never, after a pause, at an hour of the day, or both."""

    mode: str = setting(
        "none", Choice("none", "idle", "daily", "both", spelt={False: "none"}), "when a chat starts over by itself")
    at_hour: int = setting(4, Whole(0, 23, "hour"), "at this hour, in the person's zone")
    idle_minutes: int = setting(1_440, Whole(1, 60 * 24 * 3650, "minutes"), "after such a pause")
    notify: bool = setting(True, Flag(), "and says so")
    notify_exclude_platforms: tuple[str, ...] = setting(("api_server", "webhook"), Names(), "but not there")


class _Chats(Patterns):
    """Chats, or whole platforms."""

    def read(self, raw: Any) -> tuple[str, ...]:
        chats = super().read(raw)
        wrong = [chat for chat in chats if not re.fullmatch(r"[a-z][\w-]*(@[\w-]+)?(:\S+)?", chat)]
        if wrong:
            raise Unfit(f"{wrong[0]!r:.40} is neither PLATFORM nor PLATFORM:CHAT", use=chats)
        return chats


class DeliverySection(MutableSection):
    """What happens to an answer whose delivery is unknown, and which answers wait for the owner."""

    hold: tuple[str, ...] = setting(
        (), _Chats("list of platforms or platform:chat"), "chats whose answers wait until the owner sends them")
    on_unknown: str = setting(
        "repeat", Choice("repeat", "ask"), "it is sent again with a mark, or the chat is asked whether it should be")


_TRANSPORT = Choice("auto", "draft", "edit", "off", spelt={True: "auto", "on": "auto"})


class StreamingConfig(MutableSection):
    """Whether and how an answer is shown while it is being written."""

    enabled: bool = setting(
        False, Flag(), "answers are shown while they are made, where that is possible; default: yes")
    transport: str = setting("auto", _TRANSPORT, "`off` ends it")
    edit_interval: float = setting(0.8, Number(0, YEAR, "seconds"), "the shortest pause between two edits")
    buffer_threshold: int = setting(
        24, Whole(0, YEAR, "characters"), "the length before an unfinished sentence is shown"
    )
    cursor: str = setting(" ▉", Anything("text"), "shown at the end of an unfinished answer")
    mode: str | None = setting(None, _TRANSPORT, "another name of `transport`; it switches streaming on, too")
    _chosen = False

    @property
    def chosen(self) -> bool:
        """Whether the files set streaming at all."""
        return self._chosen

    def settle(self, written: Mapping[str, Any]) -> StreamingConfig:
        """Apply `mode`, which stands for `transport` and, unless `enabled` is written, for `enabled`."""
        self._chosen = "enabled" in written or "mode" in written
        if self.mode is not None:
            self.transport = self.mode
            self.enabled = self.enabled if "enabled" in written else self.mode != "off"
            self.mode = None
        return self


def _is_host(name: str) -> str:
    """Check a host name or address: one with a port, a path or a `*` would match nobody, or everybody."""
    import re

    from hermes_config.redaction import shown

    if re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})|[0-9A-Fa-f:.]{2,45}", name.strip("[]")):
        return ""
    return (
        f"must be a list of host names such as hermes.example or 10.0.0.7, without http:// and port, not {shown(name)}"
    )


class ApiServerConfig(Section):
    """The HTTP server of the gateway. Its keys are secrets of the environment and not here."""

    enabled: bool = setting(False, Flag(), "the HTTP API; its key switches it on, too", variable="API_SERVER_ENABLED")
    host: str = setting("127.0.0.1", PlainText("address"), "where it listens", variable="API_SERVER_HOST")
    port: int = setting(8642, Whole(0, 65_535, "port"), "0: any that is free", variable="API_SERVER_PORT")
    hosts: tuple[str, ...] = setting(
        (), Names(check=_is_host), "names it may be called by, besides loopback's", variable="API_SERVER_HOSTS")
    cors_origins: tuple[str, ...] = setting(
        (), Names(), "web pages that may call it", variable="API_SERVER_CORS_ORIGINS")
    model_name: str | None = setting(
        None, PlainText(), "in `/v1/models`; else `hermes-agent`", variable="API_SERVER_MODEL_NAME")
    mcp: bool = setting(
        False, Flag(), "other agents may call `/mcp`, with the same keys", variable="API_SERVER_MCP")


class ModelChoiceSection(Section):
    """Which models `/model` gives to admins and members besides the configured ones; `*`: any."""

    admin: tuple[str, ...] = setting(("*",), Names(), "models that admins choose with `/model`, besides the configured")
    member: tuple[str, ...] = setting((), Names(), "the same for members")

    def of(self, role: str) -> tuple[str, ...]:
        return {"admin": self.admin, "member": self.member}.get(role, ())


def _is_zone(name: str) -> str:
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"no such time zone: {name!r:.60}; write it as Europe/Lisbon"
    return ""


class _Folder(PlainText):
    name = "folder"

    def __init__(self) -> None:
        super().__init__("folder")

    def read(self, raw: Any) -> Any:
        text = super().read(raw)
        return None if text is None else Path(text)


_RESET = Each(Part(SessionResetPolicy, "near"), brief=True)


class GatewaySettings(MutableSection):
    """The gateway's own keys, at the top of config.yaml or under `gateway:`."""

    default_reset_policy: SessionResetPolicy = part(
        SessionResetPolicy, "near", key="session_reset", also=("default_reset_policy",), area="The gateway")
    reset_by_type: dict[str, SessionResetPolicy] = setting(
        dict, _RESET, "as `session_reset`, for `dm`, `group`, `thread` …")
    reset_by_platform: dict[Any, SessionResetPolicy] = setting(
        dict, _RESET, "as `session_reset`, for one platform; counts first")
    sessions_dir: Path = setting(
        lambda: hermes_home() / "sessions", _Folder(), "`sessions` below the home; where `sessions.json` is",
        restart=True)
    timezone: str | None = setting(
        None, PlainText("IANA zone", check=_is_zone), "of people who have set none; else the system's", restart=True)
    session_store_max_age_days: int = setting(
        90, Whole(0, 36_500, "days"), "then a silent chat is forgotten, not its conversation; 0: never", restart=True)
    write_sessions_json: bool = setting(
        True, Flag(), "keep `sessions.json`, a mirror of the routes for people", restart=True)
    group_sessions_per_user: bool = setting(
        True, Flag(), "everybody in a group has a conversation of their own", restart=True)
    thread_sessions_per_user: bool = setting(
        False, Flag(), "also in a thread, which otherwise is everybody's", restart=True)
    max_concurrent_sessions: int | None = setting(
        None, Whole(0), "conversations that may run a turn at once; 0: any number", restart=True)
    busy_input_mode: BusyMode = setting(
        "interrupt", _BUSY, "as `display.busy_input_mode`, for the gateway", also=("display.busy_input_mode",))
    max_message_age: int = setting(
        3_600, Whole(0, YEAR, "seconds"), "older messages found at a start are named, not answered")
    drain_seconds: float = setting(
        30.0, Number(0, 3_600, "seconds"), "how long a stop waits for running turns",
        also=("agent.restart_drain_timeout",), restart=True)
    turn_seconds: float = setting(
        1_800.0, Number(0, YEAR, "seconds"), "a turn without a sign of life for so long is stopped; 0: never",
        key="agent.gateway_timeout", restart=True)
    resume_window: float = setting(
        3_600.0, Number(0, YEAR, "seconds"), "how old an unfinished turn may be that a start continues; 0: any age",
        key="agent.gateway_auto_continue_freshness", restart=True)
    media_bytes: int = setting(
        20 * 1024 * 1024, Whole(1, name="bytes"), "the largest file taken from a chat, or sent to one")
    stt_echo_transcripts: bool = setting(True, Flag(), "the chat is shown the words of a voice message")
    delivery: DeliverySection = part(DeliverySection)
    streaming: StreamingConfig = setting(StreamingConfig, Part(StreamingConfig, "near", bare="enabled"))
    model_choice: ModelChoiceSection = part(ModelChoiceSection, "closed")
    group_toolsets: tuple[str, ...] | None = setting(None, Names(), "what agents of groups may have at most")
    multiplex_profiles: bool = setting(
        False, Flag(), "keep the chats of profiles apart", variable="GATEWAY_MULTIPLEX_PROFILES", restart=True)
    api_server: ApiServerConfig = part(ApiServerConfig, restart=True)


def _identity(name: str) -> str:
    platform, _, native_id = name.partition(":")
    good = platform.strip() and native_id.strip()
    return "" if good else f"must hold platform:id such as slack:U42, not {shown(name)}"


_IDENTITIES = Names("list", check=_identity)
_SECRET = PlainText("secret")
_IDS = Ids()
STRANGERS = Choice("pair", "ignore")
BOTS = Choice("none", "mentions", "all", spelt={False: "none", "false": "none"})


class Access(Section):
    """Who may write, on every platform. Read by `gateway.access.policy` at each change of the files."""

    unauthorized_dm_behavior: Literal["pair", "ignore"] | None = setting(
        None, STRANGERS, "what strangers get in private; ignore where a list is")
    allowed_users: Any = setting((), _IDS, "these may write, on every platform", variable="GATEWAY_ALLOWED_USERS")
    allow_all_users: bool = setting(
        False, Flag(), "everybody may write where no list is", variable="GATEWAY_ALLOW_ALL_USERS")
    owners: Any = setting((), _IDENTITIES, "`PLATFORM:ID`: who may do everything")
    admins: Any = setting((), _IDENTITIES, "`PLATFORM:ID`: who may do nearly everything")
    approvers: Any = setting((), _IDENTITIES, "`PLATFORM:ID`: who is asked for permission")


class PlatformSettings(MutableSection):
    """One platform: whether it is on, how it signs in, how it behaves. `extra` is the adapter's own."""

    enabled: bool = setting(False, Flag(), "a token in the environment switches it on, too")
    token: str | None = setting(None, _SECRET, "better in `.env`", variable="<PLATFORM>_BOT_TOKEN", repr=False)
    api_key: str | None = setting(None, _SECRET, "better in `.env`", repr=False)
    reply_to_mode: str = setting(
        "first", Choice("off", "first", "all"), "answers quote", variable="<PLATFORM>_REPLY_TO_MODE")
    typing_indicator: bool = setting(True, Flag(), "the sign of typing")


class ChannelOverride(Section):
    """What holds in one chat: a model, and instructions for the system text."""

    model: str | None = setting(None, PlainText("name"), "as in `/model`, which counts above it")
    provider: str | None = setting(None, PlainText("name"), "of that model, if its name does not tell")
    instructions: str | None = setting(
        None, PlainText("text"), "instructions for the model in this chat", key="system_prompt")


class PlatformChats(Section):
    """Settings of single chats of a platform, by the chat's id, `CHAT:THREAD`, or `*` for all."""

    channel_overrides: Mapping[str, ChannelOverride] = setting(dict, Each(Part(ChannelOverride)))


class PlatformAccess(Section):
    """Who may write on one platform. Read by `gateway.access.policy`."""

    allowed_users: Any = setting((), _IDS, "these may write", variable="<PLATFORM>_ALLOWED_USERS")
    allow_all_users: bool = setting(False, Flag(), "everybody may", variable="<PLATFORM>_ALLOW_ALL_USERS")
    group_allowed_users: Any = setting((), _IDS, "these may, in groups", variable="<PLATFORM>_GROUP_ALLOWED_USERS")
    group_allowed_chats: Any = setting((), _IDS, "all may, in these", variable="<PLATFORM>_GROUP_ALLOWED_CHATS")
    allow_bots: Literal["none", "mentions", "all"] = setting(
        "none", BOTS, "whether bots may", variable="<PLATFORM>_ALLOW_BOTS")
    unauthorized_dm_behavior: Literal["pair", "ignore"] | None = setting(
        None, STRANGERS, "as above, for one platform")


class Platforms(Section):
    """Keys that `gateway.config` reads platform by platform; here only for the table."""

    platforms: Any = setting(dict, Each(Part(PlatformSettings)), restart=True, area="Platforms")
    access: Any = setting(dict, Each(Part(PlatformAccess)), key="platforms")
    chats: Any = setting(dict, Each(Part(PlatformChats)), key="platforms")
    home_channel: Any = setting(
        None, Anything("section"), "`{chat_id: …}`: for notices", key="platforms.<name>.home_channel",
        variable="<PLATFORM>_HOME_CHANNEL", restart=True)
    extra: Any = setting(
        None, Anything("section"), "the adapter's own: `base_url`, `local_mode`, `require_mention` …",
        key="platforms.<name>.extra", restart=True)


AGENT_SETTINGS = (
    "models", "custom_providers", "fallback_providers", "fallback_model", "auxiliary", "demo", "agent", "toolsets",
    "platform_toolsets", "executor", "terminal", "sandbox", "approvals", "command_allowlist", "auto_title",
    "context_file_max_chars", "compression", "memory", "skills", "web", "security", "budget", "mcp_servers",
)
"""Settings, besides `model`, that an agent reads when it is created; after a change the next turn has a new agent."""
UNUSED: Mapping[str, Unused] = {
    "agent.system_prompt": Unused("the model is not given this text; put its rules into SOUL.md", unsafe=True),
    "agent.service_tier": Unused("no provider is asked for a tier"),
    "agent.gateway_timeout_warning": Unused("nobody is warned before a silent turn is stopped"),
    "agent.gateway_notify_interval": Unused("no \"still working\" notices are sent"),
    "always_log_local": Unused("the gateway always logs"),
    "approvals.cron_mode": Unused("a question of a job's turn goes to its chat, and waits for an answer there"),
    "approvals.destructive_slash_confirm": Unused("/new and /undo do not ask; /resume and /redo bring back"),
    "browser": Unused("there is no browser tool"),
    "checkpoints": Unused("files have no checkpoints"),
    "compression.hygiene_hard_message_limit": Unused("the threshold alone decides"),
    "compression.in_place": Unused("a compression always makes a new segment and can be undone"),
    "computer_use": Unused("there is no such tool"),
    "cron": Unused("jobs have no settings; limits.jobs bounds their number"),
    "curator": Unused("skills are not changed unasked"),
    "dashboard": Unused("there is no web dashboard"),
    "delivery_ledger": Unused("every delivery is stored"),
    "display.busy_ack_detail": Unused("it cannot be switched"),
    "display.busy_text_mode": Unused("use display.busy_input_mode"),
    "display.interface": Unused("the window opens where it can; hermes --plain talks line by line"),
    "display.interim_assistant_messages": Unused("it cannot be switched"),
    "display.long_running_notifications": Unused("no \"still working\" notices are sent"),
    "display.memory_notifications": Unused("what a review proposes is always shown"),
    "display.personality": Unused("SOUL.md is the personality"),
    "display.runtime_footer": Unused("it cannot be switched"),
    "display.show_reasoning": Unused("it cannot be switched"),
    "display.tool_progress_command": Unused("there is no /verbose"),
    "filter_silence_narration": Unused("it cannot be switched"),
    "goals": Unused("there are no standing goals"),
    "hooks_auto_accept": Unused("no shell hooks run"),
    "human_delay": Unused("answers are sent at once"),
    "image_gen": Unused("there is no such tool"),
    "kanban": Unused("there is no board"),
    "logging": Unused("HERMES_DEBUG=1 logs more"),
    "lsp": Unused("there are no language servers"),
    "mcp": Unused("each server has its own settings, under mcp_servers"),
    "mcp_servers.<name>.sampling": Unused("servers cannot ask the model"),
    "memory.provider": Unused("memory is kept in files of the home"),
    "moa": Unused("one model answers"),
    "network": Unused("the system's settings hold"),
    "personalities": Unused("SOUL.md is the personality"),
    "platform_hints": Unused("platforms bring their own hints"),
    "platforms.<name>.gateway_restart_notification": Unused("it cannot be switched"),
    "platforms.<name>.typing_status_text": Unused("the platform's own sign of typing is shown"),
    "privacy.redact_pii": Unused("names and numbers of people reach the model as they are", unsafe=True),
    "profile_routes": Unused("one home has one profile"),
    "provider_routing.data_collection": Unused(
        "providers that keep what is said are not avoided; model.extra_body: {provider: {…}} asks OpenRouter to",
        unsafe=True),
    "provider_routing.ignore": Unused(
        "these providers may answer; model.extra_body: {provider: {…}} tells OpenRouter", unsafe=True),
    "provider_routing.only": Unused(
        "other providers may answer; model.extra_body: {provider: {…}} tells OpenRouter", unsafe=True),
    "quick_commands": Unused("a plug-in can add commands"),
    "reset_triggers": Unused("/new and /reset start over"),
    "restart_loop_guard": Unused("a turn that kills three processes is given up"),
    "secrets": Unused("secrets are read from .env and the environment"),
    "security.website_blocklist.shared_files": Unused("no file with forbidden sites is read", unsafe=True),
    "session_reset.bg_process_max_age_hours": Unused("a conversation with a running background process stays"),
    "skills.creation_nudge_interval": Unused("memory.nudge_interval reviews skills, too"),
    "skills.write_approval": Unused("skills are always changed by a person's yes alone"),
    "strict": Unused("send_file sends files of the workspace only"),
    "streaming.fresh_final_after_seconds": Unused("the message that was streamed is edited"),
    "stt.local": Unused("stt.command names a program on this machine"),
    "stt.openai": Unused("stt.base_url and stt.model name a server"),
    "stt.provider": Unused("stt.command or stt.base_url names who listens"),
    "stt_enabled": Unused("use stt.enabled"),
    "systemd_watchdog_seconds": Unused("the unit has no watchdog"),
    "terminal.cwd": Unused("chats work in <home>/workspace, the terminal where it is"),
    "tool_loop_guardrails": Unused("agent.max_turns bounds a turn"),
    "tts": Unused("answers are not spoken"),
    "updates": Unused("nothing updates itself"),
    "video_gen": Unused("there is no such tool"),
    "voice": Unused("answers are not spoken"),
    "web.backend": Unused("use web.search_backend; pages are fetched by Hermes itself"),
    "web.extract_backend": Unused("pages are fetched by Hermes itself"),
}
"""Keys that homes of hermes-agent have and Hermes does not use. `hermes_agent.home_inventory` reports them."""


@cache
def table() -> SettingsTable:
    """The table of all settings."""
    return SettingsTable([Settings, GatewaySettings, Access, Platforms], UNUSED)


VARIABLES = {
    "HERMES_HOME": "the home; without it `~/.hermes`",
    "HERMES_DEBUG": "`1`: tracebacks on stderr, debug lines in the log",
    "HERMES_SAFE_MODE": "`1`: no plug-in is loaded",
    "HERMES_PLUGINS_DEBUG": "`1`: every step of loading plug-ins is logged",
    "HERMES_BUNDLED_PLUGINS": "another folder for the plug-ins that came with Hermes",
    "HERMES_ENABLE_PROJECT_PLUGINS": "`1`: also plug-ins in `.hermes/plugins` of the working folder",
    "HERMES_TUI_RPC_POOL_WORKERS": "threads for requests of terminal clients that may take their time; 8",
    "HERMES_TUI_GATEWAY_SHUTDOWN_GRACE_S": "seconds in which the terminal's server ends; 1",
    "HERMES_TUI_WS_ORPHAN_REAP_GRACE_S": "seconds after which a session whose client has gone is closed; 20, 0: never",
    "HERMES_TUI_SESSION_TTL_S": "seconds after which an idle session without a client is closed in any case; 21600",
    "API_SERVER_KEY": "the client key of the API; made by `hermes api key`",
    "API_SERVER_OWNER_KEY": "its owner key, which is you; made by `hermes api key --role owner`",
    "BRAVE_SEARCH_API_KEY": "the key of the Brave Search API, for `web_search`",
    "OLLAMA_HOST": "where Ollama is, for the provider `ollama`",
}
"""Variables that are not keys of config.yaml."""
UNUSED_VARIABLES = {
    "HERMES_AGENT_NOTIFY_INTERVAL": "no \"still working\" notices are sent",
    "HERMES_AGENT_TIMEOUT": "agent.gateway_timeout sets it",
    "HERMES_AGENT_TIMEOUT_WARNING": "nobody is warned before a silent turn is stopped",
    "HERMES_AUTO_CONTINUE_FRESHNESS": "agent.gateway_auto_continue_freshness sets it",
    "HERMES_GATEWAY_BUSY_INPUT_MODE": "display.busy_input_mode sets it",
    "HERMES_MEDIA_ALLOW_DIRS": "send_file sends files of the workspace only",
    "HERMES_MEDIA_DELIVERY_STRICT": "send_file sends files of the workspace only",
    "HERMES_RESTART_DRAIN_TIMEOUT": "agent.restart_drain_timeout sets it",
    "HERMES_YOLO_MODE": "--yolo or approvals.mode sets it",
}
"""Variables that hermes-agent reads and Hermes does not, with the reason."""
