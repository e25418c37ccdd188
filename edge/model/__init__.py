"""Models: weights, memory needed, fingerprints, how a file is read."""
