"""The exams of a kiosk model: requests that no training text contains, put through the public API, and their marks.

    python -m training.exam [MODEL] [--unseen] [--json FILE]

Wordings, goods, facts and names are written for this folder alone; nothing is taken from training/grammar.  A test
checks that no request stands in the training split, short ones of the second exam (``--unseen``: visits written by
somebody who had read neither) apart, which any guest may say.  Same model, same marks.
"""
