"""The switchboard: platforms in, inbox, turns, outbox, platforms out. `docs/contributors/gateway.md` is its map."""
