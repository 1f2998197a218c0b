"""The table of limits: values, units, and the effect of reaching each limit.

The attributes of `Limits` are the table. `limits:` in config.yaml may change a row by its name, and `limits()` returns
the current values. `make docs` makes `docs/operators/limits.md` from this module. Values that nobody has a reason to
change are constants of their modules.
"""

# A table: one line for a limit, as far as it fits.
# fmt: off

from __future__ import annotations

from hermes_config.schema import Section, Whole, setting

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB


def _limit(default: int, unit: str, rule: str, *, minimum: int = 1, area: str = "", fixed: bool = False) -> int:
    # The declared type is the type of the value, as with `setting` itself.
    value: int = setting(default, Whole(minimum, name=unit), rule, area=area, fixed=fixed)
    return value


class Limits(Section):
    """The current limits. Read-only: a changed configuration makes a new object."""

    title_chars: int = _limit(100, "characters", "a longer title is refused", area="Conversations")
    message_bytes: int = _limit(64 * _MIB, "bytes", "a larger message is refused, nothing is stored", minimum=64 * _KIB)
    events_per_conversation: int = _limit(2_000, "events", "the oldest events of the conversation are removed")
    replaced_days: int = _limit(
        30, "days",
        "after this time maintenance removes rows that a rewritten transcript replaced; undone turns stay",
        minimum=0)
    route_entries: int = _limit(256, "entries", "the one not used for longest is read again when it is needed")
    expiry_batch: int = _limit(500, "conversations", "further expired conversations are closed at the next check")
    mirror_routes: int = _limit(
        10_000, "routes", "sessions.json shows those used last, and says how many it leaves out", minimum=0)

    wal_bytes: int = _limit(
        16 * _MIB, "bytes", "the writer checkpoints until the log is below it", minimum=_MIB, area="Storage")
    checkpoint_pages: int = _limit(2_000, "pages", "the writer starts a checkpoint, in small steps", minimum=16)
    group_commit: int = _limit(256, "operations", "the rest goes into the next transaction")
    write_wait_ms: int = _limit(30_000, "ms", "a write that cannot get the file reports that it is locked")
    checkpoint_wait_ms: int = _limit(50, "ms", "the checkpoint is put off to the next commit", minimum=0)
    writer_cache_kib: int = _limit(4 * _KIB, "KiB", "the page cache of the writing connection", minimum=_KIB)
    reader_connections: int = _limit(8, "connections", "more are opened for the moment and closed again")

    query_chars: int = _limit(2_048, "characters", "the rest of a longer query is ignored", area="Search")
    search_catch_up_ms: int = _limit(
        200, "ms", "messages not indexed or read until then are left out, and the result says so", minimum=0)
    search_rank_window: int = _limit(
        20_000, "matches", "relevance is ranked among the newest matches, and the result says so")

    inbox_done_days: int = _limit(
        30, "days", "finished inbox rows are removed by maintenance", area="Messages in and out")
    refused_inbox_rows: int = _limit(10_000, "rows", "the oldest refusals are removed", minimum=0)
    refused_per_minute: int = _limit(60, "rows", "further refusals are not recorded", minimum=0)
    turn_attempts: int = _limit(3, "attempts", "a turn that keeps dying is given up with a visible notice")
    turn_alone_ms: int = _limit(2_000, "ms", "the next of the turns that lost two processes is recovered", minimum=0)
    turns_days: int = _limit(30, "days", "turns that ended are removed by maintenance")
    outbox_sent_days: int = _limit(30, "days", "sent items are removed by maintenance")
    dead_letters: int = _limit(1_000, "items", "the oldest dead letters are removed, and the event log says so")
    delivery_attempts: int = _limit(8, "attempts", "a delivery that keeps failing becomes a dead letter")
    retry_seconds: int = _limit(86_400, "seconds", "a delivery is never put off for longer", minimum=60)
    queued_messages: int = _limit(
        64, "messages", "a chat with so many waiting gets no more in, and is told so; commands like /stop do get in")
    jobs: int = _limit(200, "jobs", "a person with so many cannot add another")
    turn_starts: int = _limit(24, "turns", "the next turn is prepared when one of them has begun")
    cached_agents: int = _limit(512, "agents", "the one used longest ago is dropped, and made again when it is needed")
    cached_agent_bytes: int = _limit(
        64 * _MIB, "bytes", "the agent used longest ago is dropped, and made again when it is needed", minimum=_MIB)
    agent_idle_seconds: int = _limit(3_600, "seconds", "an agent that nobody used for so long is dropped", minimum=60)
    deliveries: int = _limit(64, "chats", "of each platform are written to at once; the next delivery waits")
    send_seconds: int = _limit(60, "seconds", "a message the platform did not answer for counts as unknown")
    send_file_seconds: int = _limit(600, "seconds", "a file the platform did not answer for counts as unknown")
    send_file_bytes: int = _limit(50 * _MIB, "bytes", "`send_file` refuses a larger file", minimum=_KIB)
    media_folder_bytes: int = _limit(
        2 * _GIB, "bytes", "of the files people sent and were sent, those used longest ago are removed", minimum=_MIB)
    stream_messages: int = _limit(8, "messages", "the rest of a longer answer is shown at its end")
    stream_floods: int = _limit(3, "refusals", "the answer is not shown further before its end")
    typing_seconds: int = _limit(3_600, "seconds", "a turn that takes longer shows no more signs of typing")
    approvals_days: int = _limit(
        90, "days", "ended approvals and the log of what left the sandbox are removed by maintenance")
    effects_days: int = _limit(30, "days", "marks of finished tool effects are removed by maintenance")
    prefix_epochs: int = _limit(50, "epochs", "the oldest prefixes of the conversation are removed")
    prefix_breaks: int = _limit(1_000, "rows", "the oldest breaks are removed; their count stays")

    model_connect_ms: int = _limit(15_000, "ms", "the provider counts as unreachable", minimum=100, area="Models")
    model_first_byte_ms: int = _limit(300_000, "ms", "a call that was not answered at all is given up", minimum=100)
    model_idle_ms: int = _limit(180_000, "ms", "an answer that has gone silent is given up", minimum=100)
    model_line_bytes: int = _limit(8 * _MIB, "bytes", "an answer with a longer line is given up", minimum=64 * _KIB)
    model_reply_bytes: int = _limit(64 * _MIB, "bytes", "a longer answer is given up", minimum=64 * _KIB)
    model_retry_wait_ms: int = _limit(
        60_000, "ms", "a provider that asks for a longer pause is not asked again; its fallback is", minimum=0)
    model_connections: int = _limit(1_024, "connections", "the next call to the same provider waits for one")
    model_idle_connections: int = _limit(64, "connections", "further ones are closed after their call", minimum=0)

    tool_result_chars: int = _limit(
        32_000, "characters", "the model reads head and tail, the whole is kept in a file", minimum=2_000,
        area="Tools")
    result_file_bytes: int = _limit(16 * _MIB, "bytes", "the rest of a longer result is not kept", minimum=64 * _KIB)
    results_bytes: int = _limit(128 * _MIB, "bytes", "the oldest result files of the conversation are removed")
    results_days: int = _limit(30, "days", "older result files are removed when a new one is kept")
    tool_seconds: int = _limit(300, "seconds", "a tool call that takes longer is stopped, and the model is told")
    mcp_message_bytes: int = _limit(
        16 * _MIB, "bytes", "a larger message of an MCP server is dropped while it is read, and its call fails",
        minimum=64 * _KIB)
    mcp_tools: int = _limit(200, "tools", "the further tools of an MCP server are left out, and its state says so")
    mcp_description_chars: int = _limit(
        1_000, "characters", "the rest of a longer description of an MCP server is left out", minimum=50)
    mcp_schema_bytes: int = _limit(
        16 * _KIB, "bytes", "a tool of an MCP server with a larger schema takes any arguments", minimum=_KIB)
    tool_stop_ms: int = _limit(3_000, "ms", "a tool that was told to stop and has not is cut off", minimum=100)
    tool_arguments_bytes: int = _limit(4 * _MIB, "bytes", "a call with longer arguments is refused", minimum=_KIB)
    terminal_seconds: int = _limit(180, "seconds", "a command without a time-out of its own is ended")
    terminal_longest_seconds: int = _limit(600, "seconds", "a command may not ask for a longer time-out")
    terminal_output_bytes: int = _limit(64 * _MIB, "bytes", "a command that prints more is ended", minimum=64 * _KIB)
    command_memory_bytes: int = _limit(
        0, "bytes", "a command whose processes need more is ended; 0: 3/4 of the machine", minimum=0)
    command_processes: int = _limit(1024, "processes", "a command that starts more at once is ended", minimum=16)
    command_tmp_bytes: int = _limit(
        _GIB, "bytes", "a confined command's /tmp, /dev/shm and home are full", minimum=_MIB)
    command_file_bytes: int = _limit(16 * _GIB, "bytes", "a command cannot make a larger file", minimum=_MIB)
    command_disk_reserve_bytes: int = _limit(
        512 * _MIB, "bytes", "a command that leaves less free on the disk is ended", minimum=0)
    processes_per_person: int = _limit(8, "processes", "a further background command of the person is refused")
    process_seconds: int = _limit(86_400, "seconds", "a background command that takes longer is ended")
    process_output_bytes: int = _limit(
        16 * _MIB, "bytes", "of a background command's longer output the middle is dropped", minimum=64 * _KIB)
    process_days: int = _limit(7, "days", "ended background processes and their output are removed by maintenance")
    processes_bytes: int = _limit(
        512 * _MIB, "bytes", "the oldest output of ended background processes is removed", minimum=_MIB)
    terminal_live_bytes: int = _limit(256 * _KIB, "bytes", "further live output of the command is not shown")
    read_file_bytes: int = _limit(64 * _MIB, "bytes", "`read_file` and `patch` refuse a larger file", minimum=64 * _KIB)
    read_file_lines: int = _limit(2_000, "lines", "the rest is read with the next `offset`")
    read_line_chars: int = _limit(2_000, "characters", "the rest of a longer line is left out, and the line says so")
    named_files_chars: int = _limit(
        200_000, "characters", "a message whose files named with `@` are longer is not sent, and the person is told")
    write_file_bytes: int = _limit(16 * _MIB, "bytes", "`write_file` and `patch` refuse to write more", minimum=_KIB)
    search_files_hits: int = _limit(200, "matches", "the rest is found with the next `offset`")
    search_files_seconds: int = _limit(60, "seconds", "the search ends, and says that it did not see everything")
    web_page_bytes: int = _limit(
        8 * _MIB, "bytes", "the rest of a longer page is not read (counted unpacked); a longer PDF is refused",
        minimum=_KIB)
    web_seconds: int = _limit(30, "seconds", "a page that has not come whole by then is given up, redirects included")
    web_connect_ms: int = _limit(5_000, "ms", "a server that does not answer is given up", minimum=100)
    web_redirects: int = _limit(5, "redirects", "a page that redirects more often is not fetched", minimum=0)
    web_host_requests: int = _limit(2, "requests", "of one host run at once; the next one waits")
    web_host_pause_ms: int = _limit(250, "ms", "pass between the starts of two requests to one host", minimum=0)
    web_text_chars: int = _limit(
        16_000, "characters", "the rest of the pages of a call is read with `offset`", minimum=500)
    web_parse_seconds: int = _limit(20, "seconds", "a page that takes longer to read is given up")
    web_parse_bytes: int = _limit(
        512 * _MIB, "bytes", "a page that needs more memory to read is given up", minimum=64 * _MIB)
    todo_items: int = _limit(100, "items", "a longer to-do list is refused")

    hook_ms: int = _limit(5_000, "ms", "a plug-in's callback is given up", minimum=10, area="Plug-ins and commands")
    plugin_start_ms: int = _limit(10_000, "ms", "a plug-in that is not ready counts as failed", minimum=100)
    plugin_command_ms: int = _limit(30_000, "ms", "a plug-in's slash command is given up", minimum=100)
    plugin_threads: int = _limit(32, "threads", "the next callback waits, within its own time", fixed=True)
    plugin_manifest_bytes: int = _limit(64 * _KIB, "bytes", "a plug-in with a larger one is not loaded", fixed=True)
    listed_conversations: int = _limit(10, "rows", "`/sessions` and `/resume` show the newest")
    undo_turns: int = _limit(100, "turns", "`/undo` takes back no more at once")

    context_file_bytes: int = _limit(
        _MIB, "bytes", "of a larger project file the beginning and the end are read", area="Prompt", fixed=True)
    context_file_chars: int = _limit(
        20_000, "characters",
        "of a longer project file or SOUL.md the model reads the beginning and the end (`context_file_max_chars`)",
        fixed=True)
    skills_found: int = _limit(
        1_000, "skills", "further folders are not looked at, and `hermes skills` says so", fixed=True)
    skill_description_chars: int = _limit(300, "characters", "the index shows the beginning", fixed=True)
    skill_file_bytes: int = _limit(_MIB, "bytes", "a larger file of a skill is not shown", fixed=True)
    skill_files: int = _limit(200, "files", "a skill's further files are not listed; they can be viewed", fixed=True)
    memory_file_bytes: int = _limit(
        _MIB, "bytes", "a larger memory file is not read, and nothing is written to it", fixed=True)
    memory_lock_ms: int = _limit(
        10_000, "ms", "a write to a memory that somebody else writes is refused", minimum=0, fixed=True)
    summary_calls: int = _limit(2, "calls", "a turn that needs more summaries does without a model", fixed=True)
    summary_seconds: int = _limit(120, "seconds", "a summary that takes longer is made without a model")
    fallback_summary_chars: int = _limit(8_000, "characters", "a summary made without a model ends", fixed=True)
    compressions_per_turn: int = _limit(3, "times", "a request that still does not fit is given up", fixed=True)
    title_seconds: int = _limit(30, "seconds", "the conversation gets no title, or gets it after the next exchange")
    prefix_tracks: int = _limit(4, "models", "the prefix sent to the model used longest ago is no longer compared")
    prefix_heads: int = _limit(8, "endpoints", "the bytes made for the endpoint first used are made again", fixed=True)
    token_rates: int = _limit(256, "models", "the token rate of the model seen first is forgotten", fixed=True)

    budget_warning_percent: int = _limit(
        80, "percent", "of a spending limit used: its person is told once", area="Spending")
    budget_answer_tokens: int = _limit(
        8_192, "tokens", "the longest answer of a model without `max_tokens`, while spending is limited")
    reservation_seconds: int = _limit(21_600, "seconds", "a call that was not settled counts as lost, at its estimate")
    budget_days: int = _limit(400, "days", "the spending counted for earlier days is forgotten")

    api_body_bytes: int = _limit(
        32 * _MIB, "bytes", "a request with a larger body is refused", minimum=_KIB, area="API")
    webhook_body_bytes: int = _limit(
        4 * _MIB, "bytes", "a webhook with a larger body is refused before it is verified", minimum=_KIB)
    api_connections: int = _limit(
        512, "connections", "one that has sent no request yet is closed for the next; at most half of the open files")
    api_head_seconds: int = _limit(10, "seconds", "a connection that has not sent a whole request head is closed")
    api_body_seconds: int = _limit(
        30, "seconds", "a request whose body stands still for so long is closed, and a webhook whose body takes longer")
    api_conversations: int = _limit(
        4_096, "conversations", "the history of the one used longest ago is compared with the store instead")
    api_page: int = _limit(200, "rows", "a request for a longer page is refused")
    mcp_sessions: int = _limit(200, "sessions", "a further client of the older MCP protocol gets a 503 at `/mcp`")
    mcp_session_seconds: int = _limit(
        1_800, "seconds", "a session of the older MCP protocol that was idle for so long is closed", minimum=10)
    api_keep_alive_seconds: int = _limit(15, "seconds", "a stream silent for so long sends a keep-alive")

    rpc_frame_bytes: int = _limit(
        16 * _MIB, "bytes", "a longer request is refused", minimum=64 * _KIB, area="Terminal clients")
    rpc_queue_bytes: int = _limit(32 * _MIB, "bytes", "a client that reads too slowly is disconnected; it can resume")
    rpc_sessions: int = _limit(
        256, "conversations", "the one without a client for longest is closed; while all have one, no more are opened"
    )
    rpc_waiting: int = _limit(1_000, "requests", "further slow requests are refused", fixed=True)

    pairing_seconds: int = _limit(3_600, "seconds", "a pairing code expires", area="Pairing")
    pairing_pending: int = _limit(100, "codes", "a further stranger's code ends the oldest one of the platform")
    pairing_wait_seconds: int = _limit(600, "seconds", "a person who asks again earlier is not answered")
    pairing_failures: int = _limit(5, "wrong codes", "the platform gives out and accepts no codes for a pause")
    pairing_lockout_seconds: int = _limit(
        3_600, "seconds", "the length of that pause, and how long wrong codes are counted")

    backups_kept: int = _limit(
        10, "backups", "automatic backups beyond it are removed, oldest first; those you made stay", area="Files")
    import_max_files: int = _limit(100_000, "files", "an archive with more is refused")
    import_max_bytes: int = _limit(64 * _GIB, "bytes", "an archive that unpacks to more is refused", minimum=_MIB)
    import_max_ratio: int = _limit(
        1_000, "times", "an archive that unpacks to more times its size is refused", minimum=10)
    import_call_sessions: int = _limit(500, "sessions", "`import_sessions` refuses a longer list, nothing is stored")
    import_call_messages: int = _limit(50_000, "messages", "`import_sessions` refuses more, nothing is stored")
    import_call_bytes: int = _limit(
        25 * _MIB, "bytes", "`import_sessions` refuses more, nothing is stored", minimum=_KIB)
    import_session_messages: int = _limit(10_000, "messages", "`import_sessions` refuses a session with more")
    import_session_bytes: int = _limit(5 * _MIB, "bytes", "`import_sessions` refuses a larger session", minimum=_KIB)
    config_bytes: int = _limit(4 * _MIB, "bytes", "a larger config.yaml or .env is refused", fixed=True)
    config_homes: int = _limit(16, "homes", "the configuration read longest ago is read again", fixed=True)
    crash_reports: int = _limit(20, "files", "the oldest crash reports are removed", fixed=True)
    log_bytes: int = _limit(4 * _MIB, "bytes", "the log is renamed to `.1`, replacing the one before", fixed=True)


DEFAULTS = Limits()


def limits() -> Limits:
    """The limits of the current home: the table with the changes of its config.yaml."""
    from hermes_config import config  # config is built from this table

    return config.load().limits
