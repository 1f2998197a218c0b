"""The side door: JSON-RPC for terminal and desktop clients, over stdio (`entry`) and over a WebSocket (`ws`).

protocol, methods, events → page     what can be said, as data: requests are checked by it, the document made from it
frames, outgoing, transports         how it travels, in order, without anybody waiting for a slow reader
server                               live sessions, dispatch, and the names the specification's tests know
rpc_sessions, rpc_asking, rpc_about  the methods, over a `Host` that is handed down
turning                              a prompt: who drives it, and the turn on its thread
attach, following                    conversations that a gateway drives: handed in, and followed in the store
place, visit, questions, live        a live session: its agent, a command in it, what it asks, what is shown of it
"""
