"""Voice messages and pictures: `transcription` makes text of speech, `pictures` shows or describes pictures."""
