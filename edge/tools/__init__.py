"""Tools: what measures, converts, calibrates and checks; never part of answering."""
