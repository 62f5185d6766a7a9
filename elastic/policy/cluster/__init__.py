"""What a policy is told of a cluster, and what it decides: snapshots in, plans out.

Belongs here: snapshots, amounts, rules of nodes, plans. Not here: the policies (`scaling`), room on
nodes (`placement`), objects of Kubernetes, and carrying out what was decided.
"""
