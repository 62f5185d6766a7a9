"""Predictions as files: one for each range of records, there whole or not at all.

Belongs here: what a file is called and holds (`parts`), how it comes to be, and whose folder it
lies in (`folder`).
Does not belong here: which range counts (`policy`), and what the user's processor does (`worker`).
"""
