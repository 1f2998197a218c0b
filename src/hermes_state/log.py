"""The store's log lines. `logging` is imported on the first one, so that opening a store does not pay for it."""

from __future__ import annotations


def warn(action: str, message: str, *args: object) -> None:
    """Write one line for the operator; `action` is the word that metrics and filters use."""
    import logging  # imported here because most runs log nothing

    from hermes_config import logs

    logs.redact_records()
    logging.getLogger("hermes_state").warning(message, *args, extra={"action": action})
