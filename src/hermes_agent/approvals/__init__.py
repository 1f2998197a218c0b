"""Approvals: what a command would do (`judge`), and the one way to permission (`gate`)."""
