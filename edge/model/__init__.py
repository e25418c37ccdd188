"""Models: weights and their place in memory, memory needed, fingerprints, dimensions of published models."""
