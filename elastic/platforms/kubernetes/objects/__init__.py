"""The objects of a job as plain values: what each is called, what it is made of, what it holds.

`names` says what they are called, `podspec` and `manifests` make them, `tensorboard` those of the
TensorBoard; `hooks` edits pods as the user's cluster_spec has it, and `record` reads and writes
what the ConfigMaps hold. `queues` knows what the queues of clusters want of a job, which the
controller needs too, and `queueing` what that is for the jobs of `elastic train`.

Belongs here: what the laptop, the master and the programs inside pods have to agree on.
Does not belong here: requests, and what a pod's status means.
"""
