"""Sessions: conversations and their answers, the choice of tokens, and text as pieces."""
