"""Model: weights and where they lie, footprint, fingerprint, shapes of published models."""
