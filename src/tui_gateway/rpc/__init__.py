"""The methods of the protocol, by subject. Start with `method`: what one is, and how a function becomes one."""
