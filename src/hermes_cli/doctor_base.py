"""What a check of `hermes doctor` looks at, and what it can find.

A check is a function of a `Patient` that yields findings: one with the mark `ok` when all is well. The advice of a
finding is a command line that mends it, to be run as it stands, or a sentence where no command can. `mend` is what
`--fix` does instead of the person: only what cannot lose anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_config.config import Config
from hermes_config.errors import ConfigError, HermesError

_ASK_THE_DOCTOR = re.compile(r"^hermes doctor says what to do(?:[.;] ?)?(?:or )?")

Mark = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """One home. `config` is None when it cannot be read; then `trouble` says why."""

    home: Path
    config: Config | None
    trouble: ConfigError | None = None
    online: bool = False

    @property
    def database(self) -> Path | None:
        """The SQLite file; None for a server, or when the configuration does not tell."""
        from hermes_cli import store

        if self.config is None:
            return None
        return store.database_file(self.config.database_url() or self.home / "state.db")

    @property
    def has_store(self) -> bool:
        file = self.database
        return self.config is not None and (file is None or file.exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One line of the report."""

    check: str
    mark: Mark
    says: str
    fix: str = ""
    """A command line, to be run as it stands."""
    advice: str = ""
    """What to do where there is no such command, or what else could be done."""
    mend: Callable[[], object] | None = None


Check = Callable[[Patient], Iterator[Seen]]


def ok(check: str, says: str) -> Seen:
    return Seen(check=check, mark="ok", says=says)


def problem_of(check: str, error: HermesError) -> Seen:
    """An error of ours as a finding; its hint is the advice, without the one to ask the doctor."""
    where = f" ({error.where})" if error.where else ""
    advice = _ASK_THE_DOCTOR.sub("", error.hint)
    return Seen(check=check, mark="problem", says=f"{error.what}{where}", advice=f"{advice[:1].upper()}{advice[1:]}")
