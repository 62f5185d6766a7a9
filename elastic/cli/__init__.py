"""Commands: flags become a JobSpec, the JobSpec one call of a platform.

Belongs here: what every command shares, and those of a machine. Commands about `jobs` and about
the `clusters` they share have packages of their own.
"""
