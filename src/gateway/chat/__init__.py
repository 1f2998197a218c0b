"""Chat: what people and the gateway say to each other beside turns.

`commands` answers slash commands and pressed buttons (start there), `command_context` is what a command may use,
`approvals` asks people for permission, `clarify` asks them what an agent wants to know, and `question_messages` says
whom to ask and in which words.
"""
