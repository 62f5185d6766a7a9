"""What the command line and the Python API share: from settings to a job that is followed.

Belongs here: settings resolved and checked, platforms opened, jobs looked at until they end.
Does not belong here: flags, exit codes, words for a terminal.
"""
