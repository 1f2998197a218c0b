"""`hermes completion SHELL`: a script for bash, zsh or fish that completes commands, verbs and flags.

The script is made from the table of commands and their parsers, so it always matches the commands; it starts no
process.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from hermes_cli.framework.parser import Parser, parser_of

_SHELLS = ("bash", "zsh", "fish")


def register(parser: Parser) -> None:
    parser.add_examples(
        "bash > ~/.local/share/bash-completion/completions/hermes", "zsh > ~/.zfunc/_hermes",
        "fish > ~/.config/fish/completions/hermes.fish",
    )  # fmt: skip
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> None:
    words = dict(_words())
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](words))


def _words() -> Iterator[tuple[str, dict[str, str]]]:
    """Return for each command prefix (`""`, `sessions`, `sessions list`) the next words with their meaning."""
    from hermes_cli.commands import COMMANDS

    first = {name: row.help for name, row in COMMANDS.items()} | {"--version": "print the version"}
    for name, row in COMMANDS.items():
        places = dict(_below(name, parser_of(row)))
        yield from places.items()
        if name == "chat":  # `hermes` alone takes its options
            first |= {word: said for word, said in places[name].items() if word.startswith("-")}
    yield "", first


def _below(place: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, dict[str, str]]]:
    next_words: dict[str, str] = {}
    for action in parser._actions:  # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            next_words |= {name: helps.get(name, "") for name in action.choices}
            for name, verb in action.choices.items():
                yield from _below(f"{place} {name}", verb)
        elif action.option_strings:
            next_words[action.option_strings[-1]] = (action.help or "").replace("%%", "%")
        elif action.choices:
            next_words |= {str(choice): "" for choice in action.choices}
    yield place, next_words


def _quoted(words: str) -> str:
    return "'" + words.replace("'", "") + "'"


_BASH = """\
# bash completion for hermes; made by: hermes completion bash
_hermes() {{
  local words="" place="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) ;; *) place="${{place:+$place }}$word" ;; esac
  done
  while :; do
    case "$place" in
{cases}
    esac
    [[ -n "$words" || "$place" != *" "* ]] && break
    place="${{place% *}}"
  done
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _hermes hermes"""


def _bash(words: dict[str, dict[str, str]]) -> str:
    cases = [f"      {_quoted(place)}) words={_quoted(' '.join(after))} ;;" for place, after in words.items()]
    return _BASH.format(cases="\n".join(cases))


_ZSH = """\
#compdef hermes
# zsh completion for hermes; made by: hermes completion zsh
_hermes() {{
  local place="" word
  local -a after
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    [[ "$word" == -* ]] || place="${{place:+$place }}$word"
  done
  while true; do
    case "$place" in
{cases}
    esac
    [[ ${{#after}} -gt 0 || "$place" != *" "* ]] && break
    place="${{place% *}}"
  done
  if [[ ${{#after}} -gt 0 ]]; then _describe 'hermes' after; fi
  _files
}}
_hermes "$@\""""


def _zsh(words: dict[str, dict[str, str]]) -> str:
    cases = []
    for place, after in words.items():
        rows = " ".join(_quoted(f"{word}:{said.replace(':', ' ')}") for word, said in after.items())
        cases.append(f"      {_quoted(place)}) after=({rows}) ;;")
    return _ZSH.format(cases="\n".join(cases))


_FISH = """\
# fish completion for hermes; made by: hermes completion fish
function __hermes_at
    set -l words (commandline -opc)
    set -l place
    for word in $words[2..-1]
        string match -q -- '-*' $word; or set -a place $word
    end
    while test (count $place) -gt 1; and not contains -- "$place" $__hermes_places
        set -e place[-1]
    end
    test "$place" = "$argv"
end"""


def _fish(words: dict[str, dict[str, str]]) -> str:
    lines = [_FISH, f"set -g __hermes_places {' '.join(_quoted(place) for place in words if place)}"]
    for place, after in words.items():
        for word, said in after.items():
            option = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {_quoted(word)}"
            lines.append(
                f"complete -c hermes -n {_quoted(f'__hermes_at {place}'.rstrip())} {option} -d {_quoted(said)}"
            )
    return "\n".join(lines)
