"""The machine under a step: processor, memory, threads, and how fast memory is."""
