"""ElasticTrainJob: a job of `elastic train` whose master a controller makes again.

kind        what is told, and what is made, changed and removed, of one job at one moment
judgement   how the job stands, and what is told: the status that `elastic status` shows too,
            conditions, events; what of an edited spec has an effect, what follows one of which no
            job can be made
view        a job's objects, in their roles, and how its master stands

The record, once it is there, is the job: a master that is made again is made of it, whatever has
become of the resource's spec meanwhile. A pass either tells or acts, and what is seen is written
down first, so that the end of a master's pod counts once, whenever the controller dies.
"""

from elastic.controller.kinds.elastic_train_job.kind import ElasticTrainJobs

__all__ = ["ElasticTrainJobs"]
