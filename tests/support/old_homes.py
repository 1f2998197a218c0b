"""Homes as hermes-agent leaves them, of any age, made by hand from the facts of its schema and its files.

    home = OldHome(folder, version=9)
    home.session("a", title="Trip")
    home.message("a", "user", "hello")
    home.close()

Older files lack the columns and tables that came later; a keyword that names such a column is an error, one that
names a column nobody knows is made with `extra_column`. The file is written by the standard library's SQLite, as
theirs is. `leave_log` closes it as a crash does: the last rows are only in the write-ahead log.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

# column → (declaration, schema it came with)
SESSION = {
    "id": ("TEXT PRIMARY KEY", 0), "source": ("TEXT NOT NULL", 0), "user_id": ("TEXT", 0), "model": ("TEXT", 0),
    "model_config": ("TEXT", 0), "system_prompt": ("TEXT", 0), "parent_session_id": ("TEXT", 0),
    "started_at": ("REAL NOT NULL", 0), "ended_at": ("REAL", 0), "end_reason": ("TEXT", 0),
    "message_count": ("INTEGER DEFAULT 0", 2), "tool_call_count": ("INTEGER DEFAULT 0", 2),
    "input_tokens": ("INTEGER DEFAULT 0", 2), "output_tokens": ("INTEGER DEFAULT 0", 2), "title": ("TEXT", 5),
    "cache_read_tokens": ("INTEGER DEFAULT 0", 9), "cache_write_tokens": ("INTEGER DEFAULT 0", 9),
    "reasoning_tokens": ("INTEGER DEFAULT 0", 9), "estimated_cost_usd": ("REAL", 9), "actual_cost_usd": ("REAL", 9),
    "billing_provider": ("TEXT", 9), "billing_base_url": ("TEXT", 9), "billing_mode": ("TEXT", 9),
    "cost_status": ("TEXT", 9), "cost_source": ("TEXT", 9), "pricing_version": ("TEXT", 9),
    "api_call_count": ("INTEGER DEFAULT 0", 10), "cwd": ("TEXT", 12), "git_branch": ("TEXT", 12),
    "git_repo_root": ("TEXT", 12), "handoff_state": ("TEXT", 14), "handoff_platform": ("TEXT", 14),
    "handoff_error": ("TEXT", 14), "archived": ("INTEGER NOT NULL DEFAULT 0", 14),
    "rewind_count": ("INTEGER NOT NULL DEFAULT 0", 15), "session_key": ("TEXT", 17), "chat_id": ("TEXT", 17),
    "chat_type": ("TEXT", 17), "thread_id": ("TEXT", 17), "display_name": ("TEXT", 17), "origin_json": ("TEXT", 17),
    "expiry_finalized": ("INTEGER DEFAULT 0", 17), "compression_failure_cooldown_until": ("REAL", 21),
    "compression_failure_error": ("TEXT", 21), "compression_fallback_streak": ("INTEGER NOT NULL DEFAULT 0", 21),
    "profile_name": ("TEXT", 21),
}  # fmt: skip
MESSAGE = {
    "id": ("INTEGER PRIMARY KEY AUTOINCREMENT", 0), "session_id": ("TEXT NOT NULL", 0), "role": ("TEXT NOT NULL", 0),
    "content": ("TEXT", 0), "tool_call_id": ("TEXT", 0), "tool_calls": ("TEXT", 0), "tool_name": ("TEXT", 0),
    "timestamp": ("REAL NOT NULL", 0), "token_count": ("INTEGER", 2), "finish_reason": ("TEXT", 3),
    "reasoning": ("TEXT", 6), "reasoning_content": ("TEXT", 6), "reasoning_details": ("TEXT", 6),
    "codex_reasoning_items": ("TEXT", 9), "codex_message_items": ("TEXT", 9), "platform_message_id": ("TEXT", 10),
    "observed": ("INTEGER DEFAULT 0", 12), "active": ("INTEGER NOT NULL DEFAULT 1", 15),
    "compacted": ("INTEGER NOT NULL DEFAULT 0", 19), "effect_disposition": ("TEXT", 20), "api_content": ("TEXT", 21),
}  # fmt: skip
TABLES = {
    "state_meta": ("key TEXT PRIMARY KEY, value TEXT", 10),
    "compression_locks": ("session_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL", 14),
    "gateway_routing": (
        "scope TEXT, session_key TEXT, entry_json TEXT, updated_at REAL, PRIMARY KEY (scope, session_key)",
        19,
    ),
}


class OldHome:
    """A folder with `state.db`, and `sessions/sessions.json` when an index is given."""

    def __init__(self, folder: Path, version: int = 22) -> None:
        self.folder = folder
        self.database = folder / "state.db"
        self.version = version
        folder.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(self.database, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        if version > 0:
            self.db.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
            self.db.execute("INSERT INTO schema_version VALUES (?)", (version,))
        for table, columns in (("sessions", SESSION), ("messages", MESSAGE)):
            there = [f"{name} {kind}" for name, (kind, since) in columns.items() if since <= version]
            self.db.execute(f"CREATE TABLE {table} ({', '.join(there)})")
        for table, (body, since) in TABLES.items():
            if since <= version:
                self.db.execute(f"CREATE TABLE {table} ({body})")
        self._at = 1_700_000_000.0

    def session(self, session_id: str, source: str = "cli", **columns: Any) -> str:
        self._at += 100
        self._insert("sessions", {"id": session_id, "source": source, "started_at": self._at, **columns})
        return session_id

    def message(self, session_id: str, role: str, content: Any = None, **columns: Any) -> None:
        """A structure is stored as they store it; counters are kept as they keep them."""
        self._at += 1
        stored = content if content is None or isinstance(content, str | bytes) else "\0json:" + json.dumps(content)
        row = {"session_id": session_id, "role": role, "content": stored, "timestamp": self._at, **columns}
        self._insert("messages", row)
        if self.version >= 2:
            self.db.execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = ?", (session_id,))

    def conversation(self, session_id: str, turns: int, **columns: Any) -> str:
        self.session(session_id, **columns)
        for turn in range(turns):
            self.message(session_id, "user", f"{session_id} asks {turn}")
            self.message(session_id, "assistant", f"{session_id} hears {turn}")
        return session_id

    def end(self, session_id: str, reason: str) -> None:
        self._at += 1
        self.db.execute("UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?", (self._at, reason, session_id))

    def route(self, key: str, session_id: str, *, scope: str = "/home/ana/.hermes/sessions", at: float = 1.0) -> None:
        row = (scope, key, json.dumps(entry(key, session_id)), at)
        self.db.execute("INSERT INTO gateway_routing VALUES (?, ?, ?, ?)", row)

    def index(self, entries: dict[str, Any]) -> None:
        folder = self.folder / "sessions"
        folder.mkdir(exist_ok=True)
        text = json.dumps({"_README": "for people", **entries}, indent=2)
        (folder / "sessions.json").write_text(text, encoding="utf-8")

    def extra_column(self, table: str, name: str) -> None:
        self.db.execute(f"ALTER TABLE {table} ADD COLUMN {name}")

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        marks = ", ".join("?" for _ in row)
        # Names from a test's own keywords, in a file of its own.
        sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"
        self.db.execute(sql, list(row.values()))

    def close(self) -> Path:
        """The folder, as a clean end leaves it."""
        self.db.close()
        return self.folder

    def leave_log(self, folder: Path) -> Path:
        """A copy of the home as a crash leaves it, with what is not yet in the file in `state.db-wal`."""
        shutil.copytree(self.folder, folder)
        self.db.close()
        return folder


def entry(key: str, session_id: str, **fields: Any) -> dict[str, Any]:
    """An entry of the routing index with all that must be there."""
    written = {"created_at": "2025-01-01T00:00:00", "updated_at": "2025-01-02T00:00:00", "platform": "telegram"}
    return {"session_key": key, "session_id": session_id, **written, **fields}


CONFIG = """\
# of a person who has used hermes-agent for a while
model: {default: demo, provider: auto}
agent: {max_turns: 60, gateway_timeout: 900, gateway_notify_interval: 180, system_prompt: Never touch production.}
terminal: {backend: docker, docker_image: "debian:12", timeout: 120}
approvals: {mode: manual, deny: ["git push *"], destructive_slash_confirm: true, cron_mode: deny}
command_allowlist: ["git status"]
memory: {write_approval: true, nudge_interval: 10, memory_char_limit: 2200}
skills: {write_approval: true, creation_nudge_interval: 10}
privacy: {redact_pii: true}
security: {website_blocklist: {enabled: true, domains: [intranet.example]}}
hooks:
  pre_tool_call:
    - {matcher: terminal, command: ~/.hermes/bin/guard.sh, timeout: 5}
  post_tool_call:
    - {command: ~/.hermes/bin/audit.sh}
hooks_auto_accept: true
mcp_servers:
  github: {command: npx, args: ["-y", server-github], env: {GITHUB_TOKEN: hunter2}}
  search: {url: "https://user:hunter2@mcp.example/sse", headers: {Authorization: hunter2}}
cron: {wrap_response: false, max_parallel_jobs: 2}
delegation: {subagent_auto_approve: false}
tts: {provider: edge}
web: {backend: searxng}
auxiliary: {vision: {model: some/model}}
quick_commands: {up: {type: exec, command: uptime}}
telegram: {require_mention: true, allowed_chats: ["-1001"]}
platforms:
  discord: {enabled: true}
  telegram: {allowed_users: ["42"]}
plugins: {enabled: [tally, guardian], disabled: [old]}
"""
"""What the contract says of config.yaml: each kind of key, used here or not."""
ENV = """\
OPENROUTER_API_KEY=hunter2
TELEGRAM_BOT_TOKEN=1:hunter2
DISCORD_BOT_TOKEN=hunter2
TELEGRAM_ALLOWED_USERS=42
HERMES_YOLO_MODE=0
"""
_JOB = {"prompt": "what is new?", "enabled": True, "state": "scheduled", "deliver": "origin"}
JOBS = [
    {**_JOB, "id": "a1b2c3d4e5f6", "name": "Morning briefing", "schedule_display": "0 7 * * *"},
    {**_JOB, "id": "b1b2c3d4e5f6", "name": "", "schedule": {"kind": "interval", "minutes": 30, "display": "every 30m"}},
    {**_JOB, "id": "c1b2c3d4e5f6", "name": "Weekly report", "state": "paused"},
]
HOOKS = {"greeter": ["gateway:startup", "agent:end"], "gatekeeper": ["command:*"]}


def settled_home(folder: Path) -> Path:
    """A home with a docker backend, blocking hooks, MCP servers, cron jobs, webhooks, plug-ins and conversations."""
    made = OldHome(folder)
    made.conversation("trip", 2, title="Trip plan")
    made.close()
    files: dict[str, str] = {
        "config.yaml": CONFIG,
        ".env": ENV,
        "SOUL.md": "kind",
        "cron/jobs.json": "\ufeff" + json.dumps({"jobs": JOBS, "updated_at": "2026-07-01T00:00:00"}),
        "webhook_subscriptions.json": json.dumps({"deploys": {"secret": "hunter2", "prompt": "look"}}),
        "auth.json": json.dumps({"providers": {"nous": {"access_token": "hunter2"}}}),
        "shell-hooks-allowlist.json": "{}",
        "plugins/tally/plugin.yaml": "name: tally\n",
        "plugins/tally/__init__.py": "def register(ctx): ...\n",
        "plugins/old/plugin.yaml": "name: old\n",
        "plugins/old/__init__.py": "def register(ctx): ...\n",
    }
    for name, events in HOOKS.items():
        files[f"hooks/{name}/HOOK.yaml"] = f"name: {name}\nevents: {json.dumps(events)}\n"
        files[f"hooks/{name}/handler.py"] = "def handle(event_type, context): ...\n"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for one in (folder, folder / ".env"):
        one.chmod(0o700 if one is folder else 0o600)
    return folder
