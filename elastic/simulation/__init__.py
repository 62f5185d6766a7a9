"""Clusters on a virtual clock: the policies of `elastic.policy.scaling` decide, jobs run and end.

Belongs here: workloads and where they come from (files, public traces, generators), the engine,
what is measured, plots. Does not belong here: a policy, a clock, and reading or writing of files.
"""
