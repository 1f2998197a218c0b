"""rpc: to be described."""
