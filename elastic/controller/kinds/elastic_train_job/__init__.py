"""ElasticTrainJob: a job of `elastic train` whose master a controller makes again.

kind        what is told, and what is done, of one job at one moment
actions     what is to be made, changed and removed
judgement   what is told: the status that `elastic status` shows too, conditions, events
found       how the job stands
edits       what of an edited spec has an effect on a job that is there
refusing    what follows a spec of which no job can be made
view        a job's objects in their roles, and how its master stands
objects     the objects themselves: those that the command line makes, by the same functions

The record, once it is there, is the job: a master that is made again is made of it, whatever has
become of the resource's spec meanwhile. A pass either tells or acts, and what is seen is written
down first, so that the end of a master's pod counts once, whenever the controller dies.
"""

from elastic.controller.kinds.elastic_train_job.kind import ElasticTrainJobs

__all__ = ["ElasticTrainJobs"]
