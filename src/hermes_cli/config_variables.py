"""Variables and secrets at `hermes config`: where they are kept, and how they get in.

A name like OPENAI_API_KEY is a variable and stands in `.env`, where Hermes looks for it and which only its owner can
read; a key of config.yaml has a dot, or small letters. A secret is asked for, piped in or read from a file. One that
was written on the command line is taken as well, since habits and scripts do so, with a word about the shell's history.
"""

from __future__ import annotations

import sys
from typing import Any

from hermes_cli import secret_input
from hermes_config import config, redaction
from hermes_config.errors import ConfigError, UsageError
from hermes_config.home import hermes_home
from hermes_config.sections import table


def variable(key: str) -> str:
    """The variable that a person means by this key; empty for a key of config.yaml."""
    if not (key.isascii() and key.isidentifier()):
        return ""
    if key.isupper():
        return key
    meant = redaction.is_secret_name(key) and "_" in key and not table().is_known(key) and _in_yaml(key) is None
    return key.upper() if meant else ""


def value_of(key: str, given: str | None) -> str:
    """What the key is to be: the VALUE itself; for a secret also what it points at, or what is typed unseen."""
    if not redaction.is_covered_name(key.rpartition(".")[2]):
        if given is None:
            raise UsageError("the following arguments are required: VALUE", hint="hermes config set --help tells more.")
        return given
    if given is not None:
        value = secret_input.pointed_at(given, key)
    elif sys.stdin.isatty():
        value = secret_input.asked(f"{key}; it is not shown: ")
    else:
        raise UsageError("there is no VALUE, and no terminal to ask for one", hint="Pipe it in, with - as the VALUE.")
    value = given if value is None else value
    if not value:
        raise UsageError(f"{key} was given no value", hint=f"hermes config unset {key} takes it out.")
    return value


def warn(key: str, given: str | None, value: str) -> None:
    """A secret that stood on the command line is elsewhere, too."""
    if value == given and redaction.is_covered_name(key.rpartition(".")[2]):
        print(
            f"Your shell's history may have it now, too: hermes config set {key} asks for it, or takes - (piped in) or"
            " @FILE."
        )


def keep(name: str, value: str) -> None:
    """The variable in `.env`, and out of config.yaml, where nobody would look for it."""
    config.put_variable(name, value)
    secret_input.say_kept(name, value, hermes_home())
    if isinstance(_in_yaml(name), str | int | float):
        config.unset_value(name)
        print("It stood in config.yaml as well, where nothing reads it, and is taken out there.")


def shown(name: str) -> str | None:
    """Its value for a person, covered when it is a secret; None when it stands in config.yaml alone."""
    loaded = config.load()
    if value := loaded.dotenv.get(name):
        return str(redaction.presentable(value, [name]))
    if name in loaded.tree:
        return None
    hint = "It is set in the environment." if loaded.environ(name) else ""
    raise UsageError(f"{name} is not set in .env", where=str(loaded.home / ".env"), hint=hint)


def drop(name: str) -> None:
    """Take it out of `.env`, and out of config.yaml."""
    files = [hermes_home() / ".env"] if config.remove_variable(name) else []
    if _in_yaml(name) is not None and (saved := config.unset_value(name)):
        files.append(saved.file)
    if not files:
        raise UsageError(f"{name} is not set in .env", where=str(hermes_home() / ".env"))
    print(f"{name} is taken out of {' and '.join(map(str, files))}")


def _in_yaml(name: str) -> Any:
    try:
        return config.load().tree.get(name)
    except ConfigError:  # what is wrong with the file is no business of a variable's
        return None
