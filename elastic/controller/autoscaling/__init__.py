"""The sizes of all jobs together: what a policy decides becomes what is written into their objects.

Belongs here: which policy is asked for which kinds, and what its answer means for an object of
each. Does not belong here: the policies themselves, and writing.
"""
