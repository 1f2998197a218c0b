"""The README's moving picture: three real terminals, recorded while `make crash` kills the gateway, as one SVG.

    python -m tools.crash_picture docs/images/crash.svg

`make run`, `make phone` and a shell run on pseudo-terminals. Each becomes a film strip that CSS moves on; the picture
has no script and loads nothing, so a forge shows it as an image. Some seconds after the crash the film runs faster, and
says so. Times differ from run to run, so the picture is made on demand.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from tests.support.screen_terminal import Cell, ScreenTerminal

ROOT = Path(__file__).parents[1]
_CELL, _LINE, _FONT, _BASE = 8, 17, 13.3, 12.6
_PAD, _BAR, _GAP = 9, 24, 14
_EVERY = 0.16
"""Seconds that a screen is shown, at least."""
_KEY_SECONDS, _PATIENCE = 0.055, 120.0
_FASTER, _HOLD_SECONDS = 10, 5.0
_GROUND, _INK = "#16181f", "#d5d9e8"
_PALETTE = (_GROUND, "#f7768e", "#9ece6a", "#e0af68", "#7aa2f7", "#bb9af7", "#7dcfff", _INK)
_BLOCKS = {"▌": (0, 0, 0.5, 1), "▐": (0.5, 0, 0.5, 1), "▄": (0, 0.5, 1, 0.5), "▀": (0, 0, 1, 0.5), "▉": (0, 0, 0.9, 1)}
"""Drawn as boxes (left, top, width and height, in cells): fonts leave gaps between lines."""

_TITLE = (
    "A story is being told at a desk and on a phone. kill -9 ends the gateway in the middle of a sentence; it is back "
    "within about a second, and the story goes on where it stood, in the same message, once."
)

Screen = list[list[Cell]]


@dataclass
class Pane:
    """A terminal, its place in the picture, and its screens with the second each was seen at."""

    title: str
    columns: int
    lines: int
    left: int
    top: int
    film: list[tuple[float, Screen]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return self.columns * _CELL + 2 * _PAD

    @property
    def height(self) -> int:
        return _BAR + self.lines * _LINE + 2 * _PAD


DESK = Pane("make run", 58, 17, 0, 0)
PHONE = Pane("make phone", 40, 17, DESK.width + _GAP, 0)
SHELL = Pane("a third terminal", (PHONE.left + PHONE.width - 2 * _PAD) // _CELL, 8, 0, DESK.height + _GAP)
PANES = (DESK, PHONE, SHELL)


# -- recording --------------------------------------------------------------------------------------------------------


class Stage(contextlib.ExitStack):
    """Terminals in a folder that looks like a fresh clone, filmed while something happens; they end with it."""

    def __init__(self) -> None:
        super().__init__()
        self._terminals: list[tuple[Pane, ScreenTerminal]] = []
        self._began = 0.0
        self._clone = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="hermes-picture-")))
        for name in (".venv", "Makefile", "pyproject.toml", "requirements-dev.txt"):
            (self._clone / name).symlink_to(ROOT / name)

    def open(self, pane: Pane, *command: str) -> ScreenTerminal:
        environment = {"COLORTERM": "truecolor", "LANG": "C.UTF-8", "PS1": "$ "}
        terminal = ScreenTerminal(command, env=environment, cwd=self._clone, columns=pane.columns, lines=pane.lines)
        self._terminals.append((pane, terminal))
        self.push(terminal)
        return terminal

    def film(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """For so long, or until something is so; the second at which it ended."""
        self._began = self._began or time.monotonic()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            for pane, terminal in self._terminals:
                screen = terminal.screen(within=0.01)
                if not pane.film or pane.film[-1][1] != screen:
                    pane.film.append((time.monotonic() - self._began, screen))
        return time.monotonic() - self._began

    def type(self, terminal: ScreenTerminal, line: str) -> None:
        for key in (*line, "\r"):
            terminal.keys(key)
            self.film(_KEY_SECONDS)


def record() -> tuple[float, float]:
    """Play the crash into the films of the panes; the seconds at which it may run faster, and at which it ends."""
    for name in ("NO_COLOR", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # a make within make names its folders
        os.environ.pop(name, None)
    with Stage() as stage:
        desk = stage.open(DESK, "make", "run")
        desk.see("gateway answers")
        phone = stage.open(PHONE, "make", "phone")
        phone.see("Enter sends")
        shell = stage.open(SHELL, "/bin/bash", "--norc", "--noprofile")
        shell.see("$")
        stage.film(1.5)
        stage.type(phone, "tell me the long story")
        stage.film(_PATIENCE, until=lambda: "harbour town" in phone.shown)
        stage.film(0.5)
        stage.type(shell, "make crash")
        stage.film(_PATIENCE, until=lambda: "worked on this died" in desk.shown)
        dull = stage.film(7.0)  # it catches up, then both windows go on
        stage.film(_PATIENCE, until=lambda: "doubled" in shell.shown)
        end = stage.film(1.5)
        desk.press("ctrl-d")
        desk.end()
    return dull, end


def cut(film: list[tuple[float, Screen]], dull: float) -> list[tuple[float, Screen]]:
    """The film with its end faster, and no two screens closer together than they can be seen."""
    kept: list[tuple[float, Screen]] = []
    for seen, screen in film:
        at = seen if seen < dull else dull + (seen - dull) / _FASTER
        if kept and int(at / _EVERY) == int(kept[-1][0] / _EVERY):
            at = kept.pop()[0]
        kept.append((at, screen))
    return kept


# -- drawing ----------------------------------------------------------------------------------------------------------


@dataclass
class Rows:
    """Every different line of every screen, drawn once, and the styles they use."""

    ids: dict[str, str] = field(default_factory=dict)
    styles: dict[str, str] = field(default_factory=dict)

    def of(self, row: list[Cell]) -> str:
        """The id of its drawing; empty when there is nothing to see."""
        drawn = "".join(self._runs(row))
        return self.ids.setdefault(drawn, f"r{len(self.ids)}") if drawn else ""

    def _runs(self, row: list[Cell]) -> Iterator[str]:
        column = 0
        for pen, cells in groupby(row, key=lambda cell: cell[1]):
            run = [character for character, _ in cells]
            style, ground = _look(pen)
            if ground != _GROUND:
                yield _box(column, 0, 0, len(run), 1, ground)
            yield from self._words(column, run, style)
            column += len(run)

    def _words(self, column: int, run: list[str], style: str) -> Iterator[str]:
        """The text of one style from its first to its last sign, stretched to its cells whatever the font is."""
        ink = style.partition(";")[0].removeprefix("fill:")
        yield from (_box(column + at, *_BLOCKS[sign], ink) for at, sign in enumerate(run) if sign in _BLOCKS)
        run = [" " if sign in _BLOCKS else sign for sign in run]
        seen = [at for at, sign in enumerate(run) if sign != " "]  # the empty cell behind a wide sign, too
        if seen:
            words = "".join(run[seen[0] : seen[-1] + 1]).replace("  ", "\u00a0\u00a0")  # SVG takes two blanks for one
            kind = self.styles.setdefault(style, f"s{len(self.styles)}")
            wide = f' textLength="{(seen[-1] + 1 - seen[0]) * _CELL}"' if len(words) > 1 else ""
            yield f'<text class="{kind}" x="{(column + seen[0]) * _CELL}"{wide}>{escape(words)}</text>'


def _box(column: float, left: float, top: float, width: float, height: float, colour: str) -> str:
    """A part of a row, from its base line; a little too high, so that two below each other meet."""
    x, y, wide, tall = (column + left) * _CELL, top * _LINE - _BASE, width * _CELL, height * _LINE + 0.4
    return f'<path fill="{colour}" d="M{x:g} {y:g}h{wide:g}v{tall:g}h-{wide:g}z"/>'


def _look(pen: str) -> tuple[str, str]:
    """CSS of the letters, and the colour behind them."""
    ink, ground, extra = _INK, _GROUND, ""
    codes = iter(int(code or 0) for code in pen.split(";")) if pen else iter(())
    swapped = False
    for code in codes:
        match code:
            case 1:
                extra += ";font-weight:700"
            case 2:
                extra += ";opacity:.62"
            case 3:
                extra += ";font-style:italic"
            case 4:
                extra += ";text-decoration:underline"
            case 7:
                swapped = True
            case 38 | 48:
                if next(codes) != 2:
                    raise SystemExit(f"crash_picture: a colour that is not drawn: {pen}")
                colour = "#{:02x}{:02x}{:02x}".format(*(next(codes) for _ in range(3)))
                ink, ground = (colour, ground) if code == 38 else (ink, colour)
            case _ if 30 <= code <= 37:
                ink = _PALETTE[code - 30]
            case _ if 90 <= code <= 97:
                ink = _PALETTE[code - 90]
    ink, ground = (ground, ink) if swapped else (ink, ground)
    return f"fill:{ink}{extra}", ground


def drawn(dull: float, end: float) -> str:
    """The picture of all panes."""
    rows = Rows()
    shown = dull + (end - dull) / _FASTER
    length = shown + _HOLD_SECONDS
    rules, bodies = zip(
        *(_pane(f"p{number}", pane, rows, dull, length) for number, pane in enumerate(PANES)), strict=True
    )
    styles = "".join(f".{name}{{{css}}}" for css, name in rows.styles.items())
    lines = "".join(f'<g id="{name}">{row}</g>' for row, name in rows.ids.items())
    width, height = PHONE.left + PHONE.width, SHELL.top + SHELL.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img"><title>{_TITLE}</title><style>'
        "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;"
        f"font-size:{_FONT}px}}.bar{{fill:#8b90a5}}{styles}{''.join(rules)}"
        f"@keyframes fast{{0%{{opacity:0}}{dull / length:.2%}{{opacity:1}}{shown / length:.2%}{{opacity:0}}}}"
        f"#fast{{opacity:0;animation:fast {length:.2f}s step-end infinite}}"
        "@media(prefers-reduced-motion:reduce){*{animation:none!important}}</style>"
        f"<defs>{lines}</defs>{''.join(bodies)}"
        f'<text id="fast" class="bar" x="{width - _PAD}" y="{SHELL.top + 17}" text-anchor="end">'
        f"▸▸ the rest of the story, {_FASTER} times faster</text></svg>\n"
    )


def _pane(name: str, pane: Pane, rows: Rows, dull: float, length: float) -> tuple[str, str]:
    """The rules that move a pane's film strip on, and the frame with the strip in it."""
    strip, moves = [], []
    for at, (seen, screen) in enumerate(cut(pane.film, dull)):
        lines = ((rows.of(row), y * _LINE + _BASE) for y, row in enumerate(screen))
        uses = "".join(f'<use href="#{line}" y="{y:g}"/>' for line, y in lines if line)
        strip.append(f'<g transform="translate({at * pane.width})">{uses}</g>')
        moves.append(f"{seen / length if at else 0:.2%}{{transform:translateX(-{at * pane.width}px)}}")
    last = f"transform:translateX(-{(len(strip) - 1) * pane.width}px)"
    rules = (
        f"@keyframes {name}{{{''.join(moves)}100%{{{last}}}}}"
        f"#{name}{{{last};animation:{name} {length:.2f}s step-end infinite}}"  # the last screen where nothing moves
    )
    place = f'x="{pane.left + 0.5}" y="{pane.top + 0.5}" width="{pane.width - 1}" height="{pane.height - 1}" rx="7"'
    inside = f'x="{pane.left + _PAD}" y="{pane.top + _BAR + _PAD // 2}"'
    return rules, (
        f'<rect {place} fill="{_GROUND}" stroke="#565c73"/>'
        f'<text class="bar" x="{pane.left + _PAD}" y="{pane.top + 17}">{pane.title}</text>'
        f'<svg {inside} width="{pane.columns * _CELL}" height="{pane.lines * _LINE + 1}"><g id="{name}">'
        f"{''.join(strip)}</g></svg>"
    )


def main() -> None:
    dull, end = record()
    Path(sys.argv[1]).write_text(drawn(dull, end), encoding="utf-8")


if __name__ == "__main__":
    main()
