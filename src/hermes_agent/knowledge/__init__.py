"""What the agent knows beyond the conversation: memory, skills, and changes of both that wait for a person's yes.

`memory` and `skills` read the files, `proposals` holds changes until a person decides, `review` lets the model look
back and propose, `skill_source` brings skills from a folder or a git commit.
"""
