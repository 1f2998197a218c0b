"""Commands for a running system: the gateway, incoming and outgoing messages, turns, traces, logs and spending."""
