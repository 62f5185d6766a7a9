"""The master's side, in its own pod: worker pods, the published status, the end of the pod.

`environment` is what a master's pod gives it, and `runner` what it drives. It knows of the launches
(`launches`, kept on the pod's volume) and of the pods (`watched`, a copy kept by a watch), has
`launcher` create and remove pods, and `status_store` and `events` tell the job's status. `restarts`
judges how earlier runs of the master ended, before anything else; `leaving` is what happens when
the pod is deleted.

Belongs here: what needs the rights of the master's service account.
Does not belong here: how many replicas there should be, and what follows a worker's exit.
"""
