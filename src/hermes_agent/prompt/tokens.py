"""Estimates the tokens of a request from its bytes, corrected by the usage that providers report.

For one model and one kind of content, tokens are nearly proportional to bytes, and the size in bytes is known. So an
estimate is bytes times a rate; the rate starts high and follows the reported usage, per model, for the lifetime of the
process. No tokenizer is loaded and nothing is downloaded.

An image counts as a fixed number of tokens, whatever the length of its data.
"""

from __future__ import annotations

import re

from hermes_config.limits import DEFAULTS
from hermes_config.recent import Recent

_START = 1 / 3.5
"""Tokens per byte of JSON before the first report: English needs fewer, code and most scripts about as many."""
_SLOWEST, _FASTEST = 1 / 12, 1.0
_TRUST = 0.3
"""The weight of one report in the rate."""
_WORTH_LEARNING = 2_000
"""Bytes; shorter requests teach nothing, because the provider's own framing outweighs their text."""
IMAGE_WEIGHT = int(1_600 / _START)
"""Bytes counted for an image: 1,600 tokens."""

_ENCODED_DATA = re.compile(rb"[A-Za-z0-9+/]{1024,}={0,2}")

_rates: Recent[str, float] = Recent(DEFAULTS.token_rates)


def estimate(nbytes: int, model: str = "") -> int:
    """The estimated tokens of so many encoded bytes, at the model's learnt rate."""
    return -int(-nbytes * _rates.get(model, _START) // 1)


def of_text(text: str, model: str = "") -> int:
    return estimate(len(text.encode("utf-8", "replace")), model)


def learn(model: str, nbytes: int, tokens: int) -> None:
    """Correct the rate: the provider counted `tokens` of input for a body of this `weight`."""
    if nbytes < _WORTH_LEARNING or tokens <= 0:
        return
    seen = min(max(tokens / nbytes, _SLOWEST), _FASTEST)
    known = _rates.get(model)
    _rates[model] = seen if known is None else known + _TRUST * (seen - known)


def weight(encoded: bytes) -> int:
    """The length of a fragment for the token estimate: the data of images and files counts as one image."""
    if len(encoded) < 1024 or (b"base64" not in encoded and b'"data"' not in encoded):
        return len(encoded)
    data = [len(found.group()) for found in _ENCODED_DATA.finditer(encoded)]
    return len(encoded) - sum(data) + len(data) * IMAGE_WEIGHT
