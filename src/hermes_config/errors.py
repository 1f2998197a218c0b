"""The error tree.

Every error a person can meet derives from `HermesError`. The first line of a class's docstring is its default
message, so the list of classes is also the list of messages. An error prints as one line — what happened,
where, and what to do now — and carries the exit code that the command line ends with. Modules that raise others
add their own branches.

Nothing here imports anything: every module of the project may, at no cost.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import ClassVar


class HermesError(Exception):
    """Something went wrong."""

    exit_code: ClassVar[int] = 1
    hint: str
    """What the person can do now; may be empty."""

    default_hint: ClassVar[str] = ""

    def __init__(self, message: str | None = None, *, where: str = "", hint: str = "") -> None:
        self.what = message if message is not None else self._default_message()
        self.where = where
        self.hint = hint or self.default_hint
        super().__init__(self.what)

    @classmethod
    def _default_message(cls) -> str:
        # A subclass without a docstring of its own takes its parent's: `__doc__` is not inherited.
        for kind in cls.__mro__:
            lines = (kind.__dict__.get("__doc__") or "").strip().splitlines()
            if lines:
                return str(lines[0]).rstrip(".")
        return cls.__name__

    def one_line(self) -> str:
        """What, where, what to do now — always one line, whatever a value inside it contained."""
        text = self.what.rstrip(".") if self.hint or self.where else self.what
        if self.where:
            text = f"{text} ({self.where})"
        if self.hint:
            text = f"{text}{'' if text.endswith('?') else '.'} {self.hint}"
        return " ".join(text.split())

    def in_chat(self) -> str:
        """Like `one_line`, without location and paths, for people who have no access to this machine.

        The log holds the whole line.
        """
        import re  # an error is rare; importing this module is not

        from hermes_config.home import hermes_home

        home = re.escape(str(hermes_home()))
        path = re.compile(rf"{home}[^\s'\"),;]*|(?<![\w:/.])(?:~|[A-Za-z]:)?[/\\][^\s/\\'\"]+[/\\][^\s'\"),;]*")
        hint = "" if path.search(self.hint) else self.hint
        what = path.sub(_masked, self.what)
        return " ".join((f"{what.rstrip('.')}{'' if what.endswith('?') else '.'} {hint}" if hint else what).split())

    def __str__(self) -> str:
        return self.one_line()


def _masked(path: re.Match[str]) -> str:
    """A path for people elsewhere: a program of the system by its name, and of any other path nothing."""
    plain = path[0].rstrip(":")
    folder, _, name = plain.rpartition("/")
    system = folder in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin")
    return (name if system else "a file of the home") + path[0][len(plain) :]


class UsageError(HermesError):
    """The command was not given what it needs."""

    exit_code = 2


class HomeError(HermesError):
    """The Hermes home cannot be used."""


class ConfigError(HermesError):
    """The configuration is not valid.

    Carries the file, the line (1-based, 0 if unknown), the dotted key and the reason, for programs and people.
    """

    def __init__(self, reason: str, *, file: str, line: int = 0, key: str = "", hint: str = "") -> None:
        self.file = file
        self.line = line
        self.key = key
        self.reason = reason
        what = f"{key}: {reason}" if key else reason
        super().__init__(what, where=f"{file}:{line}" if line else file, hint=hint)
