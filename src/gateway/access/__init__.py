"""Access: who may do what.

`authorisation` has the pure function that decides, and the facts that it uses; start there. `policy` reads those facts
from configuration and store and keeps them current; `pairing` gives strangers a code.
"""
