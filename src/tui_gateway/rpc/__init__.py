"""The methods of the protocol, by subject. Each takes the `RpcServices` and the parameters, and returns the result."""
