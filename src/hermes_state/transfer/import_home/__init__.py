"""Homes of hermes-agent: read one without changing it, import it, or convert it in place.

    source       its database, opened so that not a byte of its folder changes
    scan         a whole home, read and checked before anything is written; `route_entry`: one entry of its index
    row_mapping  converts its rows to ours, and groups them into conversations
    write        writes a scan into a store, in one transaction; the report, and the rows that could not be stored
    rights       everything that gives rights or runs, as a list that the owner confirms
    home_files   configuration, memories, skills and the rest of the folder
    upgrade      the same in place: backup, build beside, compare, swap
    in_use       which process uses a home now; whether hermes-agent is installed beside Hermes

Schemas up to 22 are known. Rows that cannot be stored are reported and saved in files, never silently dropped.
"""
