"""Access: who may do what.

`authorisation` is the one pure function that decides, and the facts it decides over; start there. `policy` reads those
facts from configuration and store and keeps them fresh; `pairing` answers strangers.
"""
