"""How many replicas each job of a cluster gets, by one policy or another. Pure.

Belongs here: the policies and what they weigh. Not here: on which node there is room (`placement`).
"""
