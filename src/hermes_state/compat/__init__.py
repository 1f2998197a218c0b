"""Names of `SessionDB` that plug-ins and tools of hermes-agent call and the product itself does not.

Each is a few lines over the code that production calls.
"""
