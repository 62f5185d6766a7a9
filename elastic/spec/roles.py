"""The roles of a job's processes: one table, which all that starts or counts replicas reads.

A further role is a further row, the settings that it names, and its program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from elastic.spec.job import JobSpec, WorkerRange

MASTER: Final = "master"
WORKER: Final = "worker"
PS: Final = "ps"
REDIS: Final = "redis"


class Keeper(Enum):
    """Who answers the end of a replica with its next launch, and counts it."""

    PLATFORM = "platform"
    """It is started again where it was: in the same pod, by the same supervisor. What follows how
    many ends is said by `policy.replicas`."""

    MASTER = "master"
    """It is launched anew under the next launch number, as `policy.fleet` says."""


class Quorum(Enum):
    """How many of a role's replicas have to run, or the job fails after `start_timeout`."""

    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Words:
    """What a status says of the replicas of a role, for programs: see `docs/failures.md`.

    The last two are reasons of a job that has failed, the others kinds of events.
    """

    waiting: str
    started_again: str
    scaled_away: str
    left: str
    lost: str
    failed: str
    too_many_failures: str
    too_few_run: str


@dataclass(frozen=True, slots=True)
class Role:
    """What is said of the replicas of one role; settings are named as `JobSpec` has them.

    Attributes:
        name: Begins the names of its replicas, logs and pods.
        plural: For messages.
        module: Its program, as `python -m` takes it.
        keeper: Who starts it again.
        number: The setting, or what follows from settings, that says how many there are; None where
            there is exactly one.
        is_scaled: Their number may change while the job runs, within what `number` says.
        failures: The setting that says how many ends by the user's fault the job bears, of all
            replicas of the role together; one more ends the job. None: `policy.replicas` counts.
        quorum: How many have to run.
        words: What is told of them; None where the master does not tell it.
        resource_request: The setting of what it asks a cluster for.
        resource_limit: The setting of what it may use.
        priority: The setting of its priority class.
        keeps_state: It has the volumes on which what a job goes on from outlives a process.
    """

    name: str
    plural: str
    module: str
    keeper: Keeper
    number: str | None
    is_scaled: bool
    failures: str | None
    quorum: Quorum
    words: Words | None
    resource_request: str
    resource_limit: str
    priority: str
    keeps_state: bool

    def limits(self, spec: JobSpec) -> WorkerRange:
        """How many replicas a job may have."""
        if self.number is None:
            return WorkerRange(minimum=1, maximum=1)
        number: WorkerRange | int = getattr(spec, self.number)
        if isinstance(number, int):
            return WorkerRange(minimum=number, maximum=number)
        return number

    def max_failures(self, spec: JobSpec) -> int:
        """How many ends by the user's fault a job bears."""
        assert self.failures is not None, f"the master counts no ends of {self.plural}"
        return int(getattr(spec, self.failures))


_ROWS: Final = (
    Role(
        name=MASTER,
        plural="masters",
        module="elastic.master",
        keeper=Keeper.PLATFORM,
        number=None,
        is_scaled=False,
        failures=None,
        quorum=Quorum.ALL,
        words=None,
        resource_request="master_resource_request",
        resource_limit="master_resource_limit",
        priority="master_pod_priority",
        keeps_state=True,
    ),
    Role(
        name=WORKER,
        plural="workers",
        module="elastic.worker",
        keeper=Keeper.MASTER,
        number="num_workers",
        is_scaled=True,
        failures="max_worker_failures",
        quorum=Quorum.ONE,
        words=Words(
            waiting="WorkerWaiting",
            started_again="WorkerStarted",
            scaled_away="WorkerScaledAway",
            left="WorkerLeft",
            lost="WorkerLost",
            failed="WorkerFailed",
            too_many_failures="WorkerFailures",
            too_few_run="NoWorkers",
        ),
        resource_request="worker_resource_request",
        resource_limit="worker_resource_limit",
        priority="worker_pod_priority",
        keeps_state=False,
    ),
    Role(
        name=PS,
        plural="parameter servers",
        module="elastic.ps",
        keeper=Keeper.MASTER,
        number="num_ps",
        is_scaled=False,
        failures="max_worker_failures",
        quorum=Quorum.ALL,
        words=Words(
            waiting="ServerWaiting",
            started_again="ServerStarted",
            scaled_away="ServerScaledAway",
            left="ServerLeft",
            lost="ServerLost",
            failed="ServerFailed",
            too_many_failures="ServerFailures",
            too_few_run="NoServers",
        ),
        resource_request="ps_resource_request",
        resource_limit="ps_resource_limit",
        priority="ps_pod_priority",
        keeps_state=False,
    ),
    Role(
        name=REDIS,
        plural="Redis servers",
        module="elastic.redis_server",
        keeper=Keeper.MASTER,
        number="num_redis",
        is_scaled=False,
        failures="max_worker_failures",
        quorum=Quorum.ALL,
        words=Words(
            waiting="RedisWaiting",
            started_again="RedisStarted",
            scaled_away="RedisScaledAway",
            left="RedisLeft",
            lost="RedisLost",
            failed="RedisFailed",
            too_many_failures="RedisFailures",
            too_few_run="NoRedis",
        ),
        resource_request="redis_resource_request",
        resource_limit="redis_resource_limit",
        priority="redis_pod_priority",
        keeps_state=False,
    ),
)

ROLES: Final[Mapping[str, Role]] = {role.name: role for role in _ROWS}
"""By name, in the order in which people are told of them."""

FLEET: Final = tuple(role for role in _ROWS if role.keeper is Keeper.MASTER)
"""Those whose replicas the master launches."""


def words_of(role: str) -> Words:
    """What is told of the replicas of a role that the master launches."""
    words = ROLES[role].words
    assert words is not None, f"the master tells nothing of a {role}"
    return words


def is_kept_by_platform(role: str) -> bool:
    """Whether the platform itself starts a role's replicas again; one of no row is the master's."""
    return role in ROLES and ROLES[role].keeper is Keeper.PLATFORM
