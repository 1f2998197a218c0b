"""A model that follows a script, strictly, in this process or behind a socket.

Start at `model.ScriptedModel`; `steps` are what a script is made of, `chat` and `anthropic` check requests and write
answers as their providers do, `server` serves a script over HTTP.
"""
