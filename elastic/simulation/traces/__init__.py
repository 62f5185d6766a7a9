"""Public traces of clusters, each read by the columns and keys that its publishers document.

Belongs here: texts of traces in, workloads and nodes out. Does not belong here: data of others.
"""
