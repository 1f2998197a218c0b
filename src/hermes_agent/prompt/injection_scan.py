"""Detection of prompt injection: text that gives the model orders.

Project files, memory entries and skill descriptions become part of the system text, and strangers wrote some of them.
Text that looks like an order to the model is replaced by a visible note.

The scan only catches known and clumsy attempts. The real protection is that no text gives permission: every effect
passes the approval gate.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_PEOPLE = r"(?:the\s+|this\s+)?(?:user|person|human|owner|operator)"
_WHOSE = r"(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+)?"
_EARLIER = r"(?:previous|prior|above|earlier|preceding|system)"
_RULES = r"(?:instructions?|prompts?|rules|guidelines|directions|messages)"
_SECRETS = r"(?:\.env\b|id_rsa|id_ed25519|\.ssh/|auth\.json|/etc/(?:passwd|shadow))"
# Written narrowly: ordinary project notes say "never show stack traces to the user" and "override the lint rules".
_ORDERS: dict[str, tuple[str, ...]] = {
    "it tells the model to drop its instructions": (
        rf"\b(?:ignore|disregard|forget|override)\s+{_WHOSE}{_EARLIER}\s+(?:\w+\s+)?{_RULES}\b",
        r"\b(?:ignore|disregard|forget)\s+(?:all\s+(?:of\s+)?)?your\s+(?:\w+\s+)?(?:instructions?|rules|guidelines)\b",
        r"\b(?:ignore|disregard)\s+all\s+(?:other\s+)?instructions\b",
    ),
    "it gives the model another role": (
        r"\byou\s+are\s+(?:now|no\s+longer)\b.{0,60}\b(?:assistant|ai|hermes|unrestricted|restricted|jailbroken|dan)\b",
        r"\bact\s+as\s+(?:if|though)\s+you\s+(?:have|had)\s+no\s+(?:restrictions|limits|rules)\b",
        r"\b(?:new\s+system\s+prompt|system\s+prompt\s+override)\b",
    ),
    "it asks to keep something from the person": (
        rf"\b(?:do\s+not|don't|never)\s+(?:tell|inform|alert|notify)\s+{_PEOPLE}\s+(?:about|of|that\s+you)\b",
        rf"\b(?:hide|conceal|keep)\s+(?:this|it|that)\b.{{0,20}}\bfrom\s+{_PEOPLE}\b",
        rf"\bwithout\s+(?:the\s+)?(?:telling|informing|asking)\s+{_PEOPLE}\b",
    ),
    "it imitates a message of the system": (
        r"<\|(?:im_start|im_end|system|start_header_id|endoftext)\|>|\[/?inst\]|<</?sys>>",
        r"^\s{0,3}<system>",
        r"^\s{0,3}(?:system|developer)\s*:\s*you\s+(?:must|are|will)\b",
    ),
    "it sends secrets away": (
        rf"\b(?:curl|wget|nc)\b[^\n;]{{0,120}}[@<`(][^\n;]{{0,40}}{_SECRETS}",
        rf"{_SECRETS}[^\n]{{0,80}}\|\s*(?:curl|wget|nc)\b",
    ),
}
# Invisible characters. A single joiner between letters or emoji is ordinary writing; a run of joiners hides text.
_HIDDEN = re.compile("[\u202a-\u202e]|[\u200b\u2060\ufeff]{2,}|[\u200b-\u200f\u2060\ufeff]{4,}")
_TAGS = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0000-\U000e007f]")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad]")


def suspicion(text: str) -> str | None:
    """Why the text looks like orders to the model; None if it does not."""
    if _HIDDEN.search(text) or _TAGS.search(text):
        return "it contains invisible characters"
    plain = text if text.isascii() else _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    for reason, pattern in _patterns():
        if pattern.search(plain):
            return reason
    return None


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The patterns, compiled for the first scanned text; most homes have none."""
    return tuple(
        (reason, re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE)) for reason, patterns in _ORDERS.items()
    )
