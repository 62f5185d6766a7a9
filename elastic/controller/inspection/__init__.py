"""Objects of the controller's kinds, as people see and change them by `elastic status` and others.

kinds      what a kind is asked for by commands, all of them, and `KIND/NAME` (pure)
objects    reading them from a cluster, with pods, events and logs; what `elastic scale` and
           `elastic kill` do with them

Nothing here is asked of a controller, and none needs to run: all is told by the objects.
"""
