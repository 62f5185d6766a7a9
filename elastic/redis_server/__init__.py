"""The Redis that a job brings along for its rows of embeddings, where its user names none.

Belongs here: which program that is, how it is started, that its calls are encrypted, and that the
master hears where it is.
Does not belong here: what is in it (`rows.redis`).
"""
