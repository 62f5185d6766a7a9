"""Objects of the controller's kinds, as people see and change them by `elastic status` and others.

seeing           what a kind is asked for by commands, and how its objects stand (pure)
training_jobs    TrainingJob; likewise elastic_jobs, tf_jobs and train_jobs
kinds            all of them, and `KIND/NAME` as commands take it (pure)
pods             a pod of an object: what it is called, and how it is (pure)
documents        an object with its pods and events, as it is told (pure)
objects          reading them from a cluster
changing         what `elastic scale` and `elastic kill` do with them
logs             what their pods have written

Nothing here is asked of a controller, and none needs to run: all is told by the objects.
"""
