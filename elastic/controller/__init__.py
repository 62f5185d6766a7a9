"""`elastic controller`: keeps true what objects such as TrainingJob and ElasticJob say.

resources   what users write: typed, and the schemas of their definitions
kinds       one reconciler each: what is there, in; what is to be done and told, out. Pure
snapshots   what a cluster looks like to a policy of all jobs. Pure, but for looking
autoscaling what such a policy decides, as changes of objects. Pure
machinery   watches, queue, writes, events: the same for every kind
run         the process: elected or not, and what it tells at its door
"""
