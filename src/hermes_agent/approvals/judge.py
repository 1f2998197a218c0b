"""What a command line would do."""

from __future__ import annotations

from hermes_agent.approvals.base import Judgement


def judge(command: str, *, workdir: str, home: str, user_home: str | None = None) -> Judgement:
    """`home` is the Hermes home; `user_home` the person's (the process's own by default)."""
    return Judgement("ask", "not judged yet", (command,))
