"""A kiosk that is never wrong about what it was told: code keeps the order and quotes the owner.

    turn -> understand (what the guest meant: operations) -> apply (plain data, exact money) -> what to say

``house``       what the owner wrote: texts, facts, items, bookings
``operations``  the closed set of things a turn can mean, and their one text form
``state``       the order and the bookings; apply(house, state, operation)
``words``       words of a turn, compared with words of the house
``understand``  a turn -> operations
``facts``       which of the owner's sentences answers a question
"""
