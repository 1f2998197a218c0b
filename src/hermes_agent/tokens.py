"""Token estimates. (Signatures; the bodies follow.)"""

from __future__ import annotations


def estimate(nbytes: int, model: str = "") -> int:
    """Tokens of that many encoded bytes, as this process has seen the model count."""
    raise NotImplementedError


def of_text(text: str, model: str = "") -> int:
    raise NotImplementedError


def learn(model: str, nbytes: int, tokens: int) -> None:
    """The provider counted `tokens` of input for a body of that many bytes."""
    raise NotImplementedError
