"""ElasticJob: keeps as many workers as are wanted, makes failed ones anew, and knows the end. Pure.

kind        what is told, and what is made and removed, of one job at one moment
judgement   what is counted and told: failures, conditions, the end
objects     pods, services, the store where workers meet; those of one job in their roles

A pass either tells or acts. What is seen is written down first, and only a status that says all of
it is followed by actions: so a failed pod is counted before it is removed, and once, whenever the
controller dies; and a job whose pods the cluster refuses to make still tells how it stands.
"""

from elastic.controller.kinds.elastic_job.kind import ElasticJobs

__all__ = ["ElasticJobs"]
