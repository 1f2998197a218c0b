"""The environment and working folder of child processes: allowed variables and the turn's identity.

A variable reaches a child if it is on the list or named by `terminal.env_passthrough`, but never if its name or value
looks like a secret, even if named: the model could read a key in the environment of any command. A command that needs a
key reads it from a file, with the gate's permission.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

ALLOWED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "TMPDIR", "TEMP",
    "TMP", "TZ", "HOSTNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME",
    "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy", "SYSTEMROOT", "COMSPEC", "PATHEXT", "WINDIR",
    "USERPROFILE", "APPDATA", "LOCALAPPDATA",
})  # fmt: skip
_ALLOWED_PREFIX = "LC_"
_SECRET_NAME = re.compile(
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|PAT|CREDENTIALS?|COOKIES?|AUTH|DSN)(_|$)"
    r"|APIKEY|ACCESS_KEY|PRIVATE_KEY",
    re.IGNORECASE,
)
# user:password@ inside a URL (a proxy, a database), and the shapes of well-known keys.
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@|\b(sk-|gh[pousr]_|xox[abprs]-|AKIA|AIza|glpat-)[A-Za-z0-9_-]{8,}")
_NOT_SECRET = frozenset({"SSH_AUTH_SOCK"})  # the path of a socket; passed only if named


def child_environment(
    environ: Mapping[str, str], *, passed: Sequence[str], identity: Mapping[str, str], home: Path
) -> dict[str, str]:
    """The environment of a child: the allowed variables, and the turn's identity (`HERMES_SESSION_…`).

    `passed`: further names, from `terminal.env_passthrough`.
    """
    extra = frozenset(passed)
    child = {
        name: value
        for name, value in environ.items()
        if (name in ALLOWED or name.startswith(_ALLOWED_PREFIX) or name in extra) and not is_secret(name, value)
    }
    child.update(identity)
    child["HERMES_HOME"] = str(home)
    child.setdefault("TERM", "dumb")
    # Nobody can operate a pager or an editor there.
    child["PAGER"] = child["GIT_PAGER"] = "cat"
    child["GIT_TERMINAL_PROMPT"] = "0"
    return child


def is_secret(name: str, value: str) -> bool:
    """Whether a variable must not reach a child."""
    return bool((name not in _NOT_SECRET and _SECRET_NAME.search(name)) or _SECRET_VALUE.search(value))


def working_directory(home: Path, *, started_in: Path | None) -> Path:
    """The folder in which tools start: that of the shell Hermes was started from, else `<home>/workspace` (created).

    `started_in` is None without a shell: for the gateway, a schedule, an API client.
    """
    if started_in is not None and started_in.is_dir():
        return started_in
    workspace = home / "workspace"
    workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
    return workspace
