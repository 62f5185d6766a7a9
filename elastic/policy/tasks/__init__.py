"""Records, the tasks that they are handed out in, and the account of them. Pure.

Belongs here: what the ledger counts and in which order. Not here: gradients (`updates`).
"""
