"""Approvals: `judge` finds what a command needs, `gate` gives or asks for permission."""
