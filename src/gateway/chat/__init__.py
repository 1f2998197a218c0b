"""Chat: slash commands and questions to people, beside turns.

`commands` answers slash commands and pressed buttons (start there), `command_context` is the context of a command,
`approvals` asks people for permission, `clarify` asks them an agent's questions, `cards` asks about held answers and
proposals, and `question_messages` chooses the recipients and texts of questions.
"""
