"""The methods of the protocol, by subject. Start with `method`, which defines a method and its decorator."""
