"""Scripts that the owner configured: a job's script, and the command that turns voice messages into text.

A script runs in the sandbox, like a command of the model's that nobody approved, and its output is its result. Where
no sandbox works it does not run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.text import shortened
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_config.config import Config

_OUTPUT_CHARS = 20_000
_REPORTED = 300


class ScriptFailed(HermesError):
    """The script failed."""


async def run(config: Config, script: str, folder: Path, *, seconds: float, with_errors: bool = True) -> str:
    """Run a script in a folder, which is its workspace, and return its output, shortened. Raises `ScriptFailed`.

    `with_errors`: what it writes to stderr is part of the output; else only its stdout counts, and has to be whole.
    """
    from hermes_agent.execution import executor
    from hermes_agent.execution.base import ShellCommand
    from hermes_agent.tools import environment

    shell = executor.shell()
    if shell is None:
        raise ScriptFailed("there is no shell here")
    environ = environment.child_environment(
        os.environ, passed=config.terminal.env_passthrough, identity={}, home=config.home
    )
    command = ShellCommand((shell, "-c", script), folder, {**environ, "PWD": str(folder)}, script)
    ran = await executor.Executor(config.home, config, config.limits).collect(
        command, workspace=folder, seconds=seconds, most=4 * _OUTPUT_CHARS, with_errors=with_errors
    )
    text = shortened(ran.data.decode("utf-8", "replace"), _OUTPUT_CHARS, of="its output")
    if ran.cut and not with_errors:
        raise ScriptFailed(f"it printed more than {4 * _OUTPUT_CHARS:,} bytes")
    if ran.cut:
        return text
    if ran.status is None:
        raise ScriptFailed(f"it did not end within {seconds:g} s")
    if ran.status or ran.trouble:
        last, trouble = " ".join(text.split())[-_REPORTED:], f" ({ran.trouble})" if ran.trouble else ""
        raise ScriptFailed(f"exit code {ran.status}{trouble}: {last or 'no output'}")
    return text
