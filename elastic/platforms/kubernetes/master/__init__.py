"""The master's side, in its own pod: worker pods, the published status, the end of the pod.

`environment` judges how earlier runs of the master ended, before anything else; it is what a
master's pod gives it, its end included, and has one master at a time act. `runner` is what it
drives: that creates and removes pods, and knows of the launches and, by a copy kept by a watch, of
their pods (`launches`). `publishing` tells the job's status.

Belongs here: what needs the rights of the master's service account.
Does not belong here: how many replicas there should be, and what follows a worker's exit.
"""
