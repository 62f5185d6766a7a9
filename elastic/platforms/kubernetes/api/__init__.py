"""An API server, as one user: requests sent again where they may be, and copies of what is there.

`transport` finds the server and the credentials, sends single requests at a bounded pace and names
what is refused; `cluster` reads and changes objects through it, tries again what is passing, and
has one of several processes at work by a Lease. `resources` names the types of objects and makes
their paths, and `informer` keeps a current copy of those of one type. Objects are plain dicts, as
the API server sends them.

Belongs here: what any client of Kubernetes needs; nothing but errors comes from the rest of
elastic, and the client library is used for connections and credentials alone.
Does not belong here: jobs, and what any object means to them.
"""
