"""The objects of a job as plain values: what each is called, what it is made of, what it holds.

`names` says what they are called and whose they are, and what the queues of clusters want of a job,
which the controller needs too; `podspec` makes what is in pods, and edits it as the user's
cluster_spec has it; `manifests` makes all of them, those of the TensorBoard included, and reads
what the ConfigMaps hold.

Belongs here: what the laptop, the master and the programs inside pods have to agree on.
Does not belong here: requests, and what a pod's status means.
"""
