"""`hermes sessions`: the verbs that list, show, search, change, move and compress stored conversations.

`command` maps verbs to modules; `lookup` finds the conversation that an id or a title means.
"""
