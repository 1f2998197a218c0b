"""What the model can call. `base` is what a tool is, `registry` which there are and how a call runs; tools: `builtin`."""
