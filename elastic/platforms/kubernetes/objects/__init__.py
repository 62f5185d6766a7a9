"""The objects of a job as plain values: what each is called, what it is made of, what it holds.

`names` says what they are called and whose they are; `podspec` and `manifests` make them, and read
what the ConfigMaps hold; `tensorboard` makes those of the TensorBoard, and `hooks` edits pods as
the user's cluster_spec has it. `queues` knows what the queues of clusters want of a job, which the
controller needs too.

Belongs here: what the laptop, the master and the programs inside pods have to agree on.
Does not belong here: requests, and what a pod's status means.
"""
