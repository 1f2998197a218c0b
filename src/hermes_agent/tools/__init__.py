"""What the model can call. `base`: what a tool is; `registry`: which there are, how a call runs; tools: `builtin`."""
