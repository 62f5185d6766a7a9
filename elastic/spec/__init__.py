"""What a job is, and what it tells: `JobSpec`, the contract of a user's model_def, `JobStatus`.

Belongs here: settings, their types and defaults, and the checks that need no framework.
Does not belong here: anything that reads a cluster, a clock or a tensor.
"""
