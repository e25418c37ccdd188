"""Services for programs: HTTP with the APIs of OpenAI and Ollama, a web page, Wyoming, JSON lines.

    calls          a validated request of any service: Call; a refused one: Refusal
    conversations  sessions, their KV caches and the queue before them: Ticket
    openai ollama  the two APIs: a request's JSON -> Call, pieces -> response JSON
    app            HTTP: the routes
    guard          which requests reach a route: host, origin, key
    received       the JSON text of a client: limits of memory
    exchange       requests and responses: bodies, JSON, streams, limits
    service        the model that is served, and what is checked before an answer begins
    answers        a request of either API -> answers -> a response
    wyoming        the voice protocol of Home Assistant
    client jsonl   one client of JSON lines; the JSONL protocol: records are its events
    socket pipe    its connections: a Unix socket, as a service of systemd (notify); the standard streams
"""
