"""What becomes of gradients: when a group is due, what it sums to, and of how many records. Pure.

Belongs here: groups, their noise, and which server has which share. Not here: the account of
records (`tasks`).
"""
