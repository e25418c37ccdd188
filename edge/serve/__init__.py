"""Serve: the doors through which programs come: HTTP as OpenAI's and Ollama's clients speak it, a page, Wyoming.

    calls          what any door asks for, validated: Call; and how a request is refused: Refusal
    conversations  sessions, their KV caches and the queue before them: Ticket
    openai ollama  the two dialects: a request's JSON -> Call, pieces -> response JSON
    app            HTTP itself: routes, who may ask, limits, streams
    wyoming        the voice protocol of Home Assistant
"""
