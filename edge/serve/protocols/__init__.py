"""What clients speak: the APIs of OpenAI and Ollama, JSON lines."""
