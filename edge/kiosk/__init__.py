"""A kiosk that takes orders and bookings and quotes the owner's sentences; code keeps the order, no model is needed.

    turn -> understand (operations) -> apply (the order, with exact prices) -> what to say

``house``       the house file: texts, facts, items, bookings
``operations``  everything that a turn can mean, and its text form
``state``       the order and the bookings; apply(house, state, operation)
``words``       the words of a turn, and how they are compared with those of the house (``mentions``)
``understand``  a turn -> operations: ``rewording``, ``bookings``, ``questions``, and ``orders`` with the drafts of its
                lines (``senses`` of words, ``drafts``, ``details``, ``changes``, ``placing``), ``unlisted`` things,
                ``wishes``, and ``accounts`` of what came to nothing
``facts``       chooses the sentence of the owner that answers a question
"""
