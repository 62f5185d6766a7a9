"""What a cluster looks like to a policy, read from its objects.

Belongs here: nodes, pods and jobs as objects in, snapshots out. Does not belong here: a policy, and
carrying out what it decides.
"""
