"""Homes of hermes-agent: reading one without touching it, copying it over, converting it in place.

    source       a database of theirs, opened so that not a byte of its folder changes
    scan         all of a home, read and judged before anything is written; `route_entry`: one entry of its index
    row_mapping  a row of theirs as a row of ours, and which rows are one conversation
    write        a scan written into a store, in one transaction; the report, and what could not be placed
    rights       what gives rights or runs, as the list that the owner confirms
    home_files   configuration, memories, skills and the rest of the folder
    upgrade      the same in place: backup, build beside, compare, swap
    in_use       who is using a home now; whether hermes-agent is installed beside us

Schemas up to 22 are known. What we cannot place is reported and kept aside, never dropped in silence.
"""
