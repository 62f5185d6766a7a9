"""Replicas as pods of a Kubernetes cluster: the API server keeps what every side reads and writes.

`api` talks to an API server and knows nothing of jobs. `objects` says what a job's objects are
called and made of, `pods` what the status of its pods means, and `masters` what that of its master
says of the job, all without any I/O; `groups` ends those of Kueue. On them stand the two sides,
which do not know each other: `job` is the laptop's, `master` the master's.
The programs of replicas find in `surroundings` what their pods give them, and `supervisor` is the
first process of the master's container. Objects are plain dicts, as the API server sends them.

Belongs here: pods, ConfigMaps and everything else that only this platform knows.
Does not belong here: how many replicas there should be, and what follows a worker's exit.
"""
