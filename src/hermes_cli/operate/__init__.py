"""Commands about a running system: the gateway, its messages in and out, turns, traces, logs and spending."""
