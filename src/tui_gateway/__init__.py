"""The side door: JSON-RPC for terminal and desktop clients, over stdio (`entry`) and over a WebSocket (`ws`)."""
