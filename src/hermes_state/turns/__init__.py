"""From a stored inbound message to a delivered answer: inbox rows, turns, leases, effects, outbox items.

Start with `journal`, the writes of one turn in their order; the other modules hold one table each.
"""
