"""Watches a conversation from another process, as a terminal does.

argv: the store's address, the conversation. Says `ready`, then each text as JSON when it has changed, and ends when a
text that was shown is gone.
"""

from __future__ import annotations

import json
import sys
import time

from hermes_state.ids import ConversationId
from hermes_state.session_db import SessionDB


def main(address: str, conversation: ConversationId) -> None:
    db, shown, watched = SessionDB(address), None, 0.0
    print("ready", flush=True)
    while True:
        if time.monotonic() > watched + 3:
            watched = time.monotonic()
            db.live_views.watch(conversation)
        found = db.live_views.get(conversation)
        if found is None and shown is not None:
            break
        if found is not None and found != shown:
            print(json.dumps(found), flush=True)
            shown = found
        time.sleep(0.02)
    db.close()


if __name__ == "__main__":
    main(sys.argv[1], ConversationId(sys.argv[2]))
