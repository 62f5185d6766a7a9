"""Commands: flags become a JobSpec, the JobSpec one call of a platform.

Belongs here: what every command shares, and the commands: about jobs in `job_command`, `control`
and `showing`, about many jobs and the cluster they share in `policies` and `controller`.
"""
