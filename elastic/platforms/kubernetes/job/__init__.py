"""The laptop's side: a job submitted, looked at, scaled, killed and forgotten by a user.

`platform` is what commands use, `objects` the objects of jobs as they are in the cluster, and their
end. From there `submission` and `logs` each do what one command asks for; `installing` looks at a
cluster and prepares it.

Belongs here: whatever a user does with a job, from outside and without a connection to its master.
Does not belong here: workers started and replaced, which is the master's.
"""
