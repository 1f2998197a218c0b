"""How many tokens some bytes are: an estimate, corrected by what providers report.

A request's size in bytes is known exactly and for free, and for one model and one kind of content tokens follow bytes
closely. So an estimate is bytes times a rate; the rate starts on the careful side and follows the usage the provider
reports, per model, for as long as the process lives. No tokenizer is loaded and nothing is downloaded.

The data of an image stands for a fixed number of tokens, whatever its length.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from hermes_config.limits import DEFAULTS

_START = 1 / 3.5
"""Tokens for a byte of JSON, before the first report: English needs less, code and most scripts about as much."""
_SLOWEST, _FASTEST = 1 / 12, 1.0
_TRUST = 0.3
"""How far one report moves the rate."""
_WORTH_LEARNING = 2_000
"""Bytes: in a short request the provider's own framing outweighs the text."""
IMAGE_WEIGHT = int(1_600 / _START)
"""Bytes that stand for an image: 1,600 tokens."""

_ENCODED_DATA = re.compile(rb"[A-Za-z0-9+/]{1024,}={0,2}")

_rates: OrderedDict[str, float] = OrderedDict()


def estimate(nbytes: int, model: str = "") -> int:
    """Tokens of that many encoded bytes, as this process has seen the model count."""
    return -int(-nbytes * _rates.get(model, _START) // 1)


def of_text(text: str, model: str = "") -> int:
    return estimate(len(text.encode("utf-8", "replace")), model)


def learn(model: str, nbytes: int, tokens: int) -> None:
    """The provider counted `tokens` of input for a body of that many bytes (its `weight`)."""
    if nbytes < _WORTH_LEARNING or tokens <= 0:
        return
    seen = min(max(tokens / nbytes, _SLOWEST), _FASTEST)
    known = _rates.pop(model, None)
    _rates[model] = seen if known is None else known + _TRUST * (seen - known)
    while len(_rates) > DEFAULTS.token_rates:
        _rates.popitem(last=False)


def weight(encoded: bytes) -> int:
    """The length of a fragment as far as tokens are concerned: the data of images and files counts as one image."""
    if len(encoded) < 1024 or (b"base64" not in encoded and b'"data"' not in encoded):
        return len(encoded)
    data = [len(found.group()) for found in _ENCODED_DATA.finditer(encoded)]
    return len(encoded) - sum(data) + len(data) * IMAGE_WEIGHT
