"""Replicas as pods of a Kubernetes cluster: the API server keeps what every side reads and writes.

`api` talks to an API server and knows nothing of jobs. `names` says what each object of a job is
called, `manifests` makes the objects. The master's side (`runner`) keeps a copy of its pods by
list and watch, and a small book of its launches that outlives the master's container; what a pod's
JSON means is decided in `pods`, without any I/O. Objects are plain dicts, as the API server
sends them.

Belongs here: pods, ConfigMaps and everything else that only this platform knows.
Does not belong here: how many replicas there should be, and what follows a worker's exit.
"""
