"""Objects of the controller's kinds, as people see and change them by `elastic status` and others.

kinds        what a kind is asked for by commands, all of them, and `KIND/NAME` (pure)
documents    an object with its pods and events, as it is told (pure)
objects      reading them from a cluster; what `elastic scale` and `elastic kill` do with them
logs         what their pods have written

Nothing here is asked of a controller, and none needs to run: all is told by the objects.
"""
