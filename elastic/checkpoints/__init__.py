"""The files in which a job outlasts its processes: its cuts, and the places its results go to.

Belongs here: cuts written, read and listed, and destinations proved to take files.
Does not belong here: when a cut is due, and which one a master goes on from.
"""
