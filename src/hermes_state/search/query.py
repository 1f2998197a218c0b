"""The query language of search: parse a person's text into a `Query`.

Words next to each other must all occur, each in any of its forms (`deploy` finds `deployed`); `OR` separates
alternatives, `NOT` excludes the next term, `AND` may be written out; `"…"` is a phrase or an exact word, `word*` a
prefix. Anything that breaks into several words (`chat-send`, `P2.2`, `src/a.py`, `部署OK`) is a phrase. There are no
parentheses: a query is a list of alternatives, each with required and excluded terms, and NOT binds to the
one term after it. Characters with a meaning in SQL have none here.

SQLite, PostgreSQL and the scan of rows that are not indexed yet use the same parsed query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hermes_state.search import words
from hermes_state.search.stem import stem

_LEXEME = re.compile(r'"([^"]*)"(\*?)|([^\s"*]+)(\*?)')
_SYNTAX = str.maketrans("+{}():^", "       ")
_OPERATORS = frozenset({"AND", "OR", "NOT"})
_SAY_NOTHING = frozenset(
    words.words(
        "a about all also am an and any are as at be been but by can could did do does for from get had has have he"
        " her him his how i if in into is it its just like me my no not of on or our out she should so some than that"
        " the their them then there they this to up us was we were what when where which who whom why will with would"
        " you your"
    )
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in this order with nothing between; with `prefix` the last one may be longer. With `any_form` it is one
    word, and every word with the same stem matches."""

    words: tuple[str, ...]
    prefix: bool = False
    any_form: bool = False

    def positions(self, found: Sequence[str]) -> Iterator[int]:
        """The positions in `found` where the phrase begins."""
        first, size = self.words[0], len(self.words)
        if self.any_form:
            wanted, letter = stem(first), first[0]
            yield from (i for i, word in enumerate(found) if word[0] == letter and stem(word) == wanted)
            return
        if size == 1 and self.prefix:
            yield from (i for i, word in enumerate(found) if word.startswith(first))
            return
        at = -1
        while True:
            try:
                at = found.index(first, at + 1)
            except ValueError:
                return
            if size == 1 or self._continues(found[at + 1 : at + size]):
                yield at

    def _continues(self, following: Sequence[str]) -> bool:
        rest = self.words[1:]
        if len(following) < len(rest) or tuple(following[:-1]) != rest[:-1]:
            return False
        return following[-1].startswith(rest[-1]) if self.prefix else following[-1] == rest[-1]

    def occurs(self, found: Sequence[str]) -> bool:
        return next(self.positions(found), None) is not None


@dataclass(frozen=True, slots=True)
class Alternative:
    required: tuple[Phrase, ...]
    excluded: tuple[Phrase, ...] = ()

    def matches(self, found: Sequence[str]) -> bool:
        return all(p.occurs(found) for p in self.required) and not any(p.occurs(found) for p in self.excluded)


@dataclass(frozen=True, slots=True)
class Query:
    """At least one alternative, each with at least one required phrase."""

    alternatives: tuple[Alternative, ...]

    def matches(self, found: Sequence[str]) -> bool:
        """Whether a message with these words is an answer."""
        return any(alternative.matches(found) for alternative in self.alternatives)

    def wanted(self) -> list[Phrase]:
        """The phrases to mark in a snippet."""
        return list(dict.fromkeys(p for a in self.alternatives for p in a.required))

    def is_brief(self) -> bool:
        """One or two characters of a script without spaces: too little for a ranking, so these come newest first."""
        return all(len(p.words) == 1 and words.is_spaceless(p.words[0]) for a in self.alternatives for p in a.required)

    def is_one_word(self) -> bool:
        (first, *more) = self.alternatives
        return not more and not first.excluded and sum(len(p.words) for p in first.required) == 1

    def any_word(self) -> Query:
        """Every required phrase as its own alternative, without stop words."""
        pairs = [(p, a.excluded) for a in self.alternatives for p in a.required]
        telling = [pair for pair in pairs if not (pair[0].any_form and pair[0].words[0] in _SAY_NOTHING)]
        return Query(tuple(Alternative((p,), excluded) for p, excluded in telling or pairs))

    def to_fts5(self) -> str:
        return " OR ".join(f"({_fts5(alternative)})" for alternative in self.alternatives)

    def to_tsquery(self) -> str:
        return " | ".join(f"({_tsquery(alternative)})" for alternative in self.alternatives)

    def to_loose_tsquery(self) -> str:
        """A query that finds every row that could match, for rows whose words are stored without positions."""
        return " | ".join(
            f"({' & '.join(_ts_words(p, ' & ') for p in alternative.required)})" for alternative in self.alternatives
        )


def parse(text: str, max_chars: int) -> Query | None:
    """None when nothing is left to search for, or when the operators are misused."""
    terms = list(_terms(text[:max_chars]))
    while terms and isinstance(terms[0], str):
        terms.pop(0)
    while terms and isinstance(terms[-1], str):
        terms.pop()
    alternatives: list[tuple[list[Phrase], list[Phrase]]] = [([], [])]
    operator = ""
    for term in terms:
        if isinstance(term, str):
            if operator and (operator, term) != ("AND", "NOT"):
                return None
            operator = term
            continue
        if operator == "OR":
            alternatives.append(([], []))
        if term.words:
            alternatives[-1][operator == "NOT"].append(term)
        operator = ""
    found = tuple(Alternative(tuple(needed), tuple(not_)) for needed, not_ in alternatives if needed)
    return Query(found) if found else None


def _terms(text: str) -> Iterator[Phrase | str]:
    for quoted, quoted_star, bare, star in _LEXEME.findall(text):
        if bare in _OPERATORS and not star:
            yield bare
            continue
        pieces = bare.translate(_SYNTAX).split() if bare else [quoted]
        for i, piece in enumerate(pieces):
            last = i == len(pieces) - 1
            phrase = _phrase(piece, prefix=last and bool(star or quoted_star))
            is_word = bool(bare) and len(phrase.words) == 1 and not phrase.prefix
            yield replace(phrase, any_form=True) if is_word else phrase


def _phrase(text: str, *, prefix: bool) -> Phrase:
    """The words of a term; None for an emoji or a lone sign, which is ignored."""
    found = words.words(text)
    if found and words.is_spaceless(found[-1]):
        # The text may continue after the last character, so that character alone need not be a word …
        if len(found) > 1 and len(found[-2]) == 2 and words.is_spaceless(found[-2]):
            return Phrase(tuple(found[:-1]))
        return Phrase(tuple(found), prefix=True)  # … and a single one is the beginning of a pair.
    return Phrase(tuple(found), prefix=prefix and bool(found))


def _fts5(alternative: Alternative) -> str:
    required = " AND ".join(_fts5_phrase(p) for p in alternative.required)
    if not alternative.excluded:
        return required
    return f"({required}) NOT ({' OR '.join(_fts5_phrase(p) for p in alternative.excluded)})"


def _forms(phrase: Phrase) -> list[str]:
    """The indexed words for a word in any form: its marked stem, and the word that is its own stem."""
    plain = stem(phrase.words[0])
    return [plain, words.marked_stem(plain)] if stem(plain) == plain else [words.marked_stem(phrase.words[0])]


def _fts5_phrase(phrase: Phrase) -> str:
    if phrase.any_form:
        return "({})".format(" OR ".join(f'"{form}"' for form in _forms(phrase)))
    return f'"{" ".join(phrase.words)}"{"*" if phrase.prefix else ""}'


def _tsquery(alternative: Alternative) -> str:
    parts = [f"({_ts_words(p, ' <-> ')})" for p in alternative.required]
    parts += [f"!({_ts_words(p, ' <-> ')})" for p in alternative.excluded]
    return " & ".join(parts)


def _ts_words(phrase: Phrase, joint: str) -> str:
    """Quote words for a tsquery. A word has only letters, digits and marks, so nothing in it can end the quotes."""
    if phrase.any_form:
        return "({})".format(" | ".join(f"'{form}'" for form in _forms(phrase)))
    quoted = [f"'{word}'" for word in phrase.words]
    if phrase.prefix:
        quoted[-1] += ":*"
    return joint.join(quoted)
