"""Services for programs: HTTP with the APIs of OpenAI and Ollama, a web page, JSON lines."""
