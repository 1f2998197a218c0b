"""A pretend Telegram on loopback that speaks the real Bot API, strictly.

Start at `server.FakeTelegram`; a test talks to it through `client`. `api` holds the bot's methods, `people` what
persons do, `world` the state both change, `text` the parsers of formatted text, `faults` what goes wrong on purpose.
"""
