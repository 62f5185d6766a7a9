"""An API server, as one user: requests sent again where they may be, and copies of what is there.

`kubeconfig` finds the server and the credentials, `transport` sends single requests at a bounded
pace, `cluster` reads and changes objects through it and tries again what `errors` calls passing.
`resources` names the types of objects and makes their paths, `informer` keeps a current copy of
those of one type, and `leases` has one of several processes at work. Objects are plain dicts, as
the API server sends them.

Belongs here: what any client of Kubernetes needs; nothing but errors comes from the rest of
elastic, and the client library is used for connections and credentials alone.
Does not belong here: jobs, and what any object means to them.
"""
