"""The user's network without numbers: placeholders, and what it must not hold."""
