"""A person's memory. (Signatures; the bodies follow.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hermes_config.errors import HermesError
from hermes_state.ids import PersonId

Target = Literal["memory", "user", "shared"]


@dataclass(frozen=True, slots=True)
class Memory:
    """One target as it is now."""

    target: Target
    entries: tuple[str, ...]
    used: int
    limit: int


class MemoryRefused(HermesError):
    """The memory was not changed."""

    def __init__(self, message: str, *, memory: Memory | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.memory = memory
        """The current entries, for the model to choose what to drop."""


class MemoryStore:
    """All methods are synchronous and may wait for a file lock: call them from a thread."""

    def __init__(
        self, home: Path, person: PersonId, *, config: Mapping[str, Any] | None = None, may_share: bool = False
    ) -> None:
        """`config` is config.yaml's tree (memory.memory_char_limit, memory.user_char_limit)."""
        raise NotImplementedError

    def read(self, target: Target) -> Memory:
        raise NotImplementedError

    def add(self, target: Target, content: str) -> Memory:
        raise NotImplementedError

    def replace(self, target: Target, old_text: str, content: str) -> Memory:
        raise NotImplementedError

    def remove(self, target: Target, old_text: str) -> Memory:
        raise NotImplementedError

    def apply(self, target: Target, operations: Sequence[Mapping[str, Any]]) -> Memory:
        """Several of {"action": add|replace|remove, "content", "old_text"}: all of them or none."""
        raise NotImplementedError

    def snapshot(self) -> str:
        """What enters the system text: empty when there is nothing."""
        raise NotImplementedError
