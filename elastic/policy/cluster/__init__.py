"""Which job of a cluster gets which share of it: snapshots in, plans out.

Belongs here: what a cluster looks like to a policy, the policies, and the rooms of its nodes.
Does not belong here: objects of Kubernetes, and carrying out what was decided.
"""
