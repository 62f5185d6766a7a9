"""Which nodes pods can be given, and are: what is free, tried out on a board. Pure.

Belongs here: room on nodes and the search for it. Not here: who is to have how many (`scaling`).
"""
