"""The master's side, in its own pod: worker pods, the published status, the end of the pod.

`environment` is what a master's pod gives it, its end included, and has one master at a time act;
`runner` is what it drives. That creates and removes pods, and knows of the launches (`launches`)
and of the pods (`watched`, a copy kept by a watch). `status_store` and `events` tell the job's
status.
`restarts` judges how earlier runs of the master ended, before anything else.

Belongs here: what needs the rights of the master's service account.
Does not belong here: how many replicas there should be, and what follows a worker's exit.
"""
