"""What the store says to the log: rarely, and without making every program that opens a store pay for logging."""

from __future__ import annotations


def warn(action: str, message: str, *args: object) -> None:
    """One line for the operator; `action` is the word that metrics and filters go by."""
    import logging  # here, because most runs have nothing to say

    from hermes_config import logs

    logs.redact_records()
    logging.getLogger("hermes_state").warning(message, *args, extra={"action": action})
