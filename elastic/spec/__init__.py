"""What a job is: the validated `JobSpec` and the contract of a user's model_def.

Belongs here: settings, their types and defaults, and the checks that need no framework.
Does not belong here: anything that reads a cluster, a clock or a tensor.
"""
