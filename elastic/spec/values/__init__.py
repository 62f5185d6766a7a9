"""What one setting may hold, where that is more than a number or a name: how it is read and told.

Belongs here: values that know nothing of jobs, nor of the setting they are given for.
"""
