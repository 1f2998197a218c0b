"""Sums for the demo model: exact, bounded, and nothing but numbers and operators.

An expression is parsed by Python and walked by hand; whatever is not a number, a sign or one of seven operators makes
it no sum at all. Values are fractions, so 0.1 + 0.2 is 0.3.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

_LONGEST = 200
_BITS = 4_096
_WORDS = (
    (r"\bplus\b|\bund\b(?=\s*\d)", "+"),
    (r"\bminus\b", "-"),
    (r"\btimes\b|\bmultiplied by\b|\bmal\b|\bfois\b|\bpor\b|[×·]|(?<=\d)\s*x\s*(?=\d)", "*"),
    (r"\bdivided by\b|\bgeteilt durch\b|\bdurch\b|÷|∶", "/"),
    (r"\bto the power of\b|\bhoch\b|\^", "**"),
    (r"[−–]", "-"),
)
_SUM = re.compile(r"[\d\s.()+\-*/%]+")


class NoAnswer(Exception):
    """A sum without a value; the text says why."""


def find(text: str) -> str | None:
    """The sum somebody asks for (`what is 17 times 4?`), as an expression; None when it is no sum."""
    asked = text.lower().strip().rstrip("?!. =").strip()
    asked = re.sub(
        r"^(?:please |bitte )?(?:what(?:'s| is)|how much is|calculate|compute|was (?:ist|macht)|wie ?viel (?:ist|sind)"
        r"|combien font|cu[áa]nto es|quanto fa)\s+",
        "",
        asked,
    )
    for words, sign in _WORDS:
        asked = re.sub(words, sign, asked)
    asked = re.sub(r"(?<=\d),(?=\d{3}\b)", "", asked).replace(",", ".")
    if len(asked) > _LONGEST or not _SUM.fullmatch(asked) or not re.search(r"\d\s*\)*\s*[+\-*/%]", asked):
        return None
    return " ".join(asked.split())


def evaluate(expression: str) -> str:
    """The value in digits. Raises `NoAnswer`."""
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        raise NoAnswer("that sum is not finished") from None
    try:
        return _digits(_value(tree))
    except ZeroDivisionError:
        raise NoAnswer("nobody can divide by zero, and I will not be the first") from None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _applied(node.op, _value(node.left), _value(node.right))
    raise NoAnswer("that is not a sum I know")


def _applied(op: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return Fraction(left // right)
        case ast.Mod():
            return left % right
        case ast.Pow() if right.denominator == 1 and abs(right) * max(1, _bits(left)) <= _BITS:
            return left ** int(right)
    raise NoAnswer("that number would be too large to say")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _digits(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    exact = f"{float(value):.12g}"
    return exact if Fraction(exact) == value else f"about {exact}"
