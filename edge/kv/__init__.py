"""KV cache: the plan, policies, state of one session, its bytes on disk, shared prefixes, parking."""
