"""The KV cache: its plan, policies, the state of a session, session files, the store of known beginnings."""
