"""The exam of a kiosk model: requests that no training text contains, put through the public API, and their marks.

    python -m training.exam [MODEL] [--json FILE]

Wordings, goods, facts and names are written for this folder alone; nothing is taken from training/grammar, and a test
checks that no request stands in the training split.  Same model, same marks.
"""
