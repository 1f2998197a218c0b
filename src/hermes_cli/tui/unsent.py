"""What was typed and sent, and with which no turn has begun yet.

Either a turn begins with it, or it goes back to the editor, once; or the window is left, and prints it. What the server
has answered for is in the store, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hermes_cli.tui.blocks import UserBlock
from hermes_cli.tui.widgets import WaitingBar


class Unsent:
    """`bar` shows what waits behind a turn; `give_back` gets words that were not taken up."""

    def __init__(self, bar: WaitingBar, give_back: Callable[[str], None]) -> None:
        self._bar, self._give_back = bar, give_back
        self.sent: UserBlock | None = None
        """On the screen already; the turn it begins has not begun."""
        self._queue: list[UserBlock] = []
        self._stored: set[UserBlock] = set()
        """What the server has taken: it is stored there, and waits for its turn."""

    @property
    def queue(self) -> list[UserBlock]:
        return list(self._queue)

    @property
    def known(self) -> list[UserBlock]:
        """What waits at the server."""
        return [said for said in self._queue if said in self._stored]

    @property
    def all(self) -> list[UserBlock]:
        return [*([] if self.sent is None else [self.sent]), *self._queue]

    def wait(self, said: UserBlock) -> None:
        self._queue.append(said)
        self._show()

    def stored(self, said: UserBlock) -> None:
        if said in self.all:
            self._stored.add(said)

    def is_stored(self, said: UserBlock) -> bool:
        return said in self._stored

    def take(self, words: Iterable[UserBlock]) -> list[UserBlock]:
        """Those of them that are still here; they are not, any more."""
        given = set(words)
        taken = [said for said in self.all if said in given]
        if self.sent in given:
            self.sent = None
        self._queue = [said for said in self._queue if said not in given]
        self._stored -= given
        self._show()
        return taken

    def back(self, words: Iterable[UserBlock]) -> None:
        """To where they were typed, those that are still here."""
        if taken := self.take(words):
            self._give_back("\n\n".join(said.text for said in taken))

    def _show(self) -> None:
        self._bar.show([said.text for said in self._queue], "next")
