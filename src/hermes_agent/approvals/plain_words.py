"""Words that answer a question of permission when a message holds nothing else.

Control is structure, never text, with this one exception: a whole message that is a plain yes or no may answer the one
open question of its chat (`gateway.chat.approvals` holds the conditions). A plain yes is the least: `once`. A longer
message means nothing here. docs/users/approvals.md prints this table.
"""

from __future__ import annotations

import unicodedata
from typing import Final, Literal

# language: (yes, no)
WORDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "English": (("yes", "y", "yep", "yeah", "ok", "okay", "sure", "allow", "approve"), ("no", "n", "nope", "deny")),
    "German": (("ja", "jo", "klar", "in ordnung", "erlauben"), ("nein", "nee", "ablehnen")),
    "French": (("oui", "ouais", "d'accord", "d’accord", "autoriser"), ("non", "refuser")),
    "Spanish": (("sí", "si", "vale", "de acuerdo", "permitir"), ("no", "denegar")),
    "Italian": (("sì", "si", "va bene", "d'accordo", "d’accordo"), ("no", "nega")),
    "Portuguese": (("sim", "tá bom", "está bem", "permitir"), ("não", "nao", "negar")),
    "Dutch": (("ja", "oké", "oke", "prima", "akkoord"), ("nee", "weigeren")),
    "Polish": (("tak", "dobrze", "zgoda"), ("nie", "odmów")),
    "Russian": (("да", "ок", "хорошо", "ладно", "разрешить"), ("нет", "запретить")),
    "Chinese": (("是", "是的", "好", "好的", "可以", "同意", "允许"), ("不", "不是", "不行", "不可以", "不要", "拒绝")),
}
_YES = frozenset(unicodedata.normalize("NFC", word).casefold() for yes, _ in WORDS.values() for word in yes)
_NO = frozenset(unicodedata.normalize("NFC", word).casefold() for _, no in WORDS.values() for word in no)
_LONGEST = 24


def meaning(message: str) -> Literal["once", "deny"] | None:
    """What a message means as an answer; None for everything that is no plain yes or no. Case, and a full stop or an
    exclamation mark behind it, do not matter."""
    if len(message) > _LONGEST:
        return None
    word = " ".join(unicodedata.normalize("NFC", message).casefold().split()).rstrip(".!。！ ")
    return "once" if word in _YES else "deny" if word in _NO else None
