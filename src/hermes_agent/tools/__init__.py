"""The tools a model can call. `base` defines a tool, `registry` lists tools and runs calls, `builtin` holds our own."""
