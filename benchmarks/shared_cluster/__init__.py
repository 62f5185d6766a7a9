"""The published experiment in which many training jobs share 64 GPUs, for several policies.

Belongs here: readers of its measured profiles and workloads, its simulator, the policies as
columns, the published figures. Does not belong here: a policy, see `elastic.policy.cluster`.
"""
