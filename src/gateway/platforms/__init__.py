"""Platforms: the contract between the gateway and chat services.

`base` is the contract; start there. `registry` finds adapters, `connections` keeps them connected,
`splitting` cuts long texts. `telegram` is one folder and one registration, as any platform.
"""
