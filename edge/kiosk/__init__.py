"""A kiosk that takes orders and bookings and quotes the owner's sentences; code keeps the order, no model is needed.

    turn -> understand (operations) -> apply (the order, with exact prices) -> what to say

``house``       the house file: texts, facts, items, bookings
``operations``  everything that a turn can mean, and its text form
``state``       the order and the bookings; apply(house, state, operation)
``words``       compares the words of a turn with those of the house
``understand``  a turn -> operations
``facts``       chooses the sentence of the owner that answers a question
"""
