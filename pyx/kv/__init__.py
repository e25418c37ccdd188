"""The KV cache of a session: pages, their pool, what is kept, and recurrent states."""
