"""Session: one conversation, its answers, how tokens are chosen and how they become pieces of text."""
