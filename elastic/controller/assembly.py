"""The controller as it is shipped: all kinds, and the engine that runs them."""

from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.kinds.queueing import Queues
from elastic.controller.kinds.tf_job import TFJobs
from elastic.controller.kinds.training_job import TrainingJobs
from elastic.controller.machinery.engine import Engine
from elastic.controller.parts import IsServed, Parts
from elastic.controller.reconciling import Kind
from elastic.controller.resources.definitions import definitions
from elastic.controller.resources.tf_job import SHARE_PODS


def assembled() -> Parts:
    """All parts."""
    return Parts(_kinds, definitions, Engine)


def _kinds(is_served: IsServed) -> dict[str, Kind]:
    has_kubeshare, queues = is_served(SHARE_PODS), Queues.of(is_served)
    kinds: tuple[Kind, ...] = (
        TrainingJobs(queues=queues),
        ElasticJobs(queues),
        TFJobs(has_kubeshare),
        ElasticTrainJobs(queues),
    )
    return {kind.resource.kind.lower(): kind for kind in kinds}
