"""Starts and stops the gateway of a home, as a background process or through its systemd unit.

Only the lock shows whether a gateway runs, never a file; a signal goes only to the process that wrote the pid file, if
it is still the same process. If the unit is installed and systemd answers, systemd starts and stops the gateway:
otherwise it would restart a stopped one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway import status
from hermes_config.errors import HermesError, UsageError
from hermes_config.home import ensure_folder, private_open
from hermes_config.version import module_command

UNIT = "hermes-gateway.service"
_START_SECONDS = 30.0
_PAUSE = 0.05
_SOON = 1.0
_PLAIN_WORD = re.compile(r"[\w@+=:,./$%-]+")

_UNIT_TEXT = """\
[Unit]
Description=Hermes gateway ({folder})
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={command} gateway run
Environment={variable}
Environment=MALLOC_ARENA_MAX=2
WorkingDirectory={folder}
Restart=always
RestartSec=2
# Longer than gateway.drain_seconds, so that running turns can end; the others continue after the next start.
TimeoutStopSec={stop_seconds}
KillMode=mixed
UMask=0077
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


class GatewayFailed(HermesError):
    """The gateway did not start."""

    default_hint = "hermes gateway logs shows why; hermes gateway run starts it in this terminal."


def start(home: Path) -> int:
    """Start a gateway in the background; return its process id once it accepts messages."""
    if status.is_running(home):
        raise status.GatewayRunning(where=str(home))
    log = ensure_folder("logs") / "gateway.out"
    with private_open(log, "ab") as out:
        before = out.tell()
        child = subprocess.Popen(
            [*module_command("hermes_cli"), "gateway", "run"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            cwd=home, start_new_session=True, env={**os.environ, "HERMES_HOME": str(home)},
        )  # fmt: skip
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if child.poll() is not None:
            raise _exited(log, since=before)
        seen = status.read_status(home)
        if seen.running and seen.started_at is not None and seen.pid == child.pid:
            return child.pid
        time.sleep(_PAUSE)
    raise GatewayFailed(f"the gateway is not ready after {_START_SECONDS:.0f} s (process {child.pid})", where=str(home))


def _exited(log: Path, *, since: int) -> GatewayFailed:
    said = _last_line(log, since).removeprefix("hermes: ")
    if not said:
        hint = "hermes gateway run starts it in this terminal, and shows why."
        return GatewayFailed("the gateway exited without output", hint=hint)
    return GatewayFailed(f"the gateway exited: {said}")


def start_again(home: Path) -> int:
    """Start the gateway after a stop and return its process id. A supervisor (demo, systemd) may start it first."""
    try:
        return start(home)
    except (status.GatewayRunning, GatewayFailed):
        until = time.monotonic() + _START_SECONDS
        while status.is_running(home) and time.monotonic() < until:
            seen = status.read_status(home)
            if seen.started_at is not None and seen.pid is not None:
                return seen.pid
            time.sleep(_PAUSE)
        raise


def stop(home: Path, *, seconds: float, force: bool = False, waits: Callable[[], None] | None = None) -> bool:
    """Stop the gateway and wait for its end; False when none was running. With `force`, kill it after the wait.

    `waits` is called when the gateway does not end within a second.
    """
    if not status.is_running(home):
        return False
    pid = status.read_pid(home)
    if pid is None:
        hint = "Stop it in the terminal where it was started."
        raise UsageError("a gateway runs, but gateway.pid does not name its process", where=str(home), hint=hint)
    with suppress(ProcessLookupError):  # it may have just ended
        os.kill(pid, signal.SIGTERM)
    soon = min(_SOON, seconds)
    if _gone(home, soon):
        return True
    if waits is not None:
        waits()
    if _gone(home, seconds - soon):
        return True
    if not force:
        raise UsageError(
            f"the gateway (process {pid}) is still finishing its turns after {seconds:.0f} s",
            hint="Wait, or hermes gateway stop --force: nothing is lost, its turns continue at the next start.",
        )
    if status.read_pid(home) == pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return _gone(home, 10)


def _gone(home: Path, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while status.is_running(home):
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE)
    return True


def _last_line(log: Path, since: int) -> str:
    with log.open("rb") as opened:
        opened.seek(since)
        lines = opened.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


# -- systemd -------------------------------------------------------------------------------------------------


def unit_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user" / UNIT


def unit_text(home: Path, *, drain: float) -> str:
    found = shutil.which("hermes")
    is_ours = found and Path(found).resolve().parent == Path(sys.executable).parent
    words = [found] if found and is_ours else module_command("hermes_cli")
    if any(not str(text).isprintable() or "\\" in str(text) for text in (home, *words)):
        what = "a unit cannot name this path: it holds a line break, a control character or a backslash"
        raise UsageError(what, where=ascii(str(home)), hint="Move the home to a folder with a plain name.")
    called = " ".join(_word(word.replace("$", "$$")) for word in words)
    folder = str(home).replace("%", "%%")
    return _UNIT_TEXT.format(
        folder=folder, variable=_word(f"HERMES_HOME={home}"), command=called, stop_seconds=int(drain) + 15
    )


def _word(text: str) -> str:
    """Quote one word of a unit file if needed."""
    escaped = text.replace("%", "%%")
    return escaped if _PLAIN_WORD.fullmatch(text) else '"' + escaped.replace('"', '\\"') + '"'


def installed(home: Path) -> bool:
    """Whether the unit of this home is installed."""
    try:
        return f"Environment={_word(f'HERMES_HOME={home}')}\n" in unit_file().read_text(encoding="utf-8")
    except OSError:
        return False


def systemd(*words: str) -> bool:
    """Run `systemctl --user …`; False when there is none, or it fails."""
    tool = shutil.which("systemctl")
    if tool is None:
        return False
    return subprocess.run([tool, "--user", *words], stdin=subprocess.DEVNULL, check=False).returncode == 0


def manages(home: Path) -> bool:
    """Whether systemd runs this home's gateway."""
    return installed(home) and systemd("is-enabled", "--quiet", UNIT)


def install(home: Path, *, drain: float) -> Path:
    file = unit_file()
    if file.exists() and not installed(home):
        hint = "hermes gateway uninstall removes it."
        raise UsageError("the gateway of another home is installed under this name", where=str(file), hint=hint)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(unit_text(home, drain=drain), encoding="utf-8")
    return file


def uninstall() -> bool:
    file = unit_file()
    if not file.exists():
        return False
    systemd("disable", "--now", UNIT)
    file.unlink()
    systemd("daemon-reload")
    return True
