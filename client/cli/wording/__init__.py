"""How answers are worded for people: what a command is about, and how much of an answer is shown."""
