"""Chat platforms. `base` is the contract of an adapter; each platform is a folder beside it."""
