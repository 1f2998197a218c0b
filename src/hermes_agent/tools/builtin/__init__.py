"""The tools that come with Hermes, one file a tool. `tools.registry` lists them."""
