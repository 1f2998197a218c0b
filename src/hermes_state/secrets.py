"""Leaving credentials out of what a person takes elsewhere.

Looks at names, not at values: a JSON text loses every member whose name says that it holds a key, a token or a
password. A text that holds none is handed back byte for byte.
"""

from __future__ import annotations

import json
import re
from typing import Any

_NAME = re.compile(r"(^|_)(api_?key|token|secret|password|passwd|credentials?|authorization|cookie)$", re.IGNORECASE)


def without(text: str | None) -> str | None:
    """A stored JSON text without its credentials. One that cannot be read and might hold some becomes empty."""
    if not text:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return (
            "{}" if re.search(r"key|token|secret|passw|credential|authorization|cookie", text, re.IGNORECASE) else text
        )
    clean = _clean(value)
    return text if clean == value else json.dumps(clean, ensure_ascii=False)


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _clean(item) for name, item in value.items() if not _NAME.search(name)}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
