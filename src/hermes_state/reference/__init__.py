"""Homes of the reference system: reading one without touching it, copying it over, converting it in place.

    source     a database of theirs, opened so that not a byte of its folder changes
    records    a row of theirs as a row of ours
    entries    one entry of their routing index, checked as they check it
    lineage    which rows are one conversation
    survey     all of a home, read and judged before anything is written
    importing  a survey written into a store, in one transaction
    rights     what gives rights or runs, as the list that the owner confirms
    homefiles  configuration, memories, skills and the rest of the folder
    aside      what could not be placed, kept in files beside the store
    report     what was found and done, as plain facts
    checking   what was written, compared row by row with what was read
    upgrading  the same in place: backup, build beside, check, swap
    holding    who is using a home now; is the reference installed beside us

Schemas up to 22 are known. What we cannot place is reported and kept aside, never dropped in silence.
"""
