"""Files that describe clusters, policies by their names, and plans for people.

Belongs here: snapshots and nodes as documents, the registry of policies, how a plan is shown.
Does not belong here: a policy, objects of Kubernetes, and reading or writing of files.
"""
