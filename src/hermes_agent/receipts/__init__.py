"""What a turn did: its receipt (`receipt`, start reading there), and asking another model the same (`replay`)."""
