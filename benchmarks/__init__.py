"""Speed as ratios: each path of the project against what it is made of, measured in one run.

Belongs here: one module a ratio, the processes they start, and the plain loops they divide by.
Does not belong here: pass or fail of the code (`tests`).
"""
