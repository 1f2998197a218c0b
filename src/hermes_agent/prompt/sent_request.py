"""The exact bytes that a model received: the parts that are stored with a call, and the request rendered from them.

A request is a pure function of the prefix of its epoch, the rows of its segment up to one id, and the few `parts` that
neither holds. Its SHA-256 was stored when it was sent, so a rendered request is either proven or called different.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_agent.models import provider_table
from hermes_agent.models.base import Endpoint
from hermes_config.errors import HermesError
from hermes_config.version import VERSION

if TYPE_CHECKING:
    from hermes_agent.prompt.transcript import Body, EncodedTranscript
    from hermes_state import SessionDB
    from hermes_state.ids import ConversationId
    from hermes_state.turns.model_calls import ModelCall


class NotKept(HermesError):
    """The request cannot be rendered any more."""

    default_hint = "hermes turns show names the calls of a turn."


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as it is rendered now."""

    content: bytes
    sha256: str
    """Of `content`."""
    why_not: str
    """Why these are not the bytes that were sent; empty: their hash is the stored one."""

    @property
    def exact(self) -> bool:
        return not self.why_not


def parts(endpoint: Endpoint, body: Body, ending: bytes) -> dict[str, Any]:
    """What `rendered` needs besides the prefix and the rows. It holds no secrets."""
    kept: dict[str, Any] = {
        "wire": endpoint.wire, "base_url": endpoint.base_url, "epoch": body.epoch, "head_id": body.head_id,
        "rows": body.rows, "ending": ending.decode(), "version": VERSION,
    }  # fmt: skip
    if endpoint.options:
        kept["options"] = endpoint.options
    return kept


def rendered(db: SessionDB, conversation_id: ConversationId, call: ModelCall) -> SentRequest:
    """The request of a call, rendered again and compared with the hash of what was sent. Raises `NotKept`."""
    kept = call.request
    if kept is None:
        what = "a summary's request is not kept" if call.task else "no request was sent"
        raise NotKept(f"call {call.number} of turn {call.turn_id} has no bytes: {what}")
    endpoint = Endpoint(
        provider=call.provider, wire=kept["wire"], base_url=kept["base_url"], model=call.model,
        options=tuple((name, value) for name, value in kept.get("options") or ()),
    )  # fmt: skip
    transcript, ids = read_again(db, conversation_id, call, endpoint)
    content = transcript.body(endpoint).ended(str(kept["ending"]).encode())
    digest = hashlib.sha256(content).hexdigest()
    return SentRequest(content, digest, "" if digest == call.sha256 else _why_not(kept, len(ids)))


def read_again(
    db: SessionDB, conversation_id: ConversationId, call: ModelCall, endpoint: Endpoint
) -> tuple[EncodedTranscript, Sequence[int]]:
    """What the model of a call read, encoded for an endpoint, and the ids of its rows. Raises `NotKept`."""
    from hermes_agent.prompt.prefix import stored
    from hermes_agent.prompt.transcript import EncodedTranscript

    assert call.request is not None, "the caller has checked it"
    epoch, head, count = (int(call.request[name]) for name in ("epoch", "head_id", "rows"))
    prefix = stored(db, conversation_id, epoch)
    if prefix is None:
        hint = "limits.prefix_epochs says how many a conversation keeps."
        raise NotKept(f"the prefix of epoch {epoch} is no longer stored", hint=hint)
    rows = db.rows_until(call.session_id, head, count)
    transcript = EncodedTranscript(db, call.session_id, provider_table.wire_for(endpoint), prefix)
    transcript.take_rows(rows)
    return transcript, rows.ids


def _why_not(kept: Mapping[str, Any], rows: int) -> str:
    if rows != kept["rows"]:
        return f"{kept['rows']} messages were sent, and {rows} of them are stored"
    if kept["version"] != VERSION:
        return f"version {kept['version']} of Hermes sent it, and this is {VERSION}"
    return "a message was changed since, or a provider's format is rendered differently"
