"""Decisions without side effects: values in, decisions out.

Belongs here: the ledger, aggregation, leases, relaunch and reconcile rules.
Does not belong here: clocks, threads, sockets, frameworks, cluster clients. The time comes in as
`now_s`, chance as a seeded `random.Random`, so that every rule is tested in microseconds and
replayed by a simulator.
"""
