"""What is wrong with a key of config.yaml, with the line on which it stands."""

from __future__ import annotations

from hermes_config import yaml_file
from hermes_config.config import Config
from hermes_config.errors import ConfigError


def fault(config: Config, key: str, reason: str, *, hint: str = "") -> ConfigError:
    return ConfigError(reason, file=str(config.home / "config.yaml"), line=line_of(config, key), key=key, hint=hint)


def line_of(config: Config, key: str) -> int:
    """Where the key stands. The file is read again only when there is something to complain about."""
    file = config.home / "config.yaml"
    try:
        return yaml_file.parse(file.read_text(encoding="utf-8"), file=str(file)).line(key.split("."))
    except (OSError, UnicodeDecodeError, ConfigError):  # gone or broken since it was loaded: then without a line
        return 0
