"""Decisions without side effects: values in, decisions out.

Belongs here: the ledger and its `tasks`, `updates` by gradients, relaunch and reconcile rules; and
what jobs of a `cluster` get of it, by `scaling` and `placement`.
Does not belong here: clocks, threads, sockets, frameworks, cluster clients. The time comes in as
`now_s`, chance as a seeded `random.Random`, so that every rule is tested in microseconds and
replayed by a simulator.
"""
