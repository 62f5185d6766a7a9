"""What this platform offers to commands and programs; see `PlatformEntry`."""

from collections.abc import Iterator
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import Platform
from elastic.platforms.registry import (
    SERVER_PATIENCE_S,
    Check,
    CheckRequest,
    ClusterChoice,
    MakeImage,
    MasterEnvironment,
    Outcome,
    PlatformEntry,
    Surroundings,
)
from elastic.policy.replicas import ReplicaId


class _KubernetesEntry:
    """Jobs in a cluster."""

    def is_meant(self, choice: ClusterChoice) -> bool:
        """Whether somebody has named a cluster, or one is configured."""
        from elastic.platforms.kubernetes.api.transport import is_configured

        return choice != ClusterChoice() or is_configured()

    def open(self, choice: ClusterChoice, patience_s: float, make_image: MakeImage) -> Platform:
        """The jobs of a namespace.

        Raises:
            PlatformError: No cluster can be used from here.
        """
        from elastic.platforms.kubernetes.api.cluster import connect
        from elastic.platforms.kubernetes.job.platform import KubernetesPlatform

        cluster = connect(choice.kubeconfig, choice.context, patience_s)
        return KubernetesPlatform(cluster, choice.namespace, make_image)

    def checks(self, request: CheckRequest) -> Iterator[Check]:
        """Look at the cluster, the engine that makes images, and their registry."""
        from elastic.platforms.kubernetes.api.cluster import connect
        from elastic.platforms.kubernetes.job.installing import (
            OTHER_CLUSTER,
            check_cluster,
            check_engine,
            check_registry,
        )

        choice = request.choice
        try:
            cluster = connect(choice.kubeconfig, choice.context, SERVER_PATIENCE_S)
        except PlatformError as error:
            yield Check("cluster", Outcome.FAILURE, str(error), OTHER_CLUSTER)
        else:
            namespace = choice.namespace or cluster.namespace
            yield from check_cluster(cluster, namespace, request.service_account)
        yield check_engine(request.docker_base_url)
        if request.repository:
            yield check_registry(request.repository)
        else:
            text = "none asked: name it with --docker_image_repository"
            yield Check("registry", Outcome.SKIPPED, text)

    def surroundings(self, place: str, replica: ReplicaId | None) -> Surroundings:  # noqa: ARG002 - a pod knows which it is
        """What the pod of a replica is given."""
        from elastic.platforms.kubernetes.surroundings import PodSurroundings

        return PodSurroundings()

    def master_environment(self, place: str) -> MasterEnvironment | None:  # noqa: ARG002 - a pod knows where it is
        """What the pod of a master gives it; None where its job has come to its end already.

        Raises:
            PlatformError: This is no master's pod, or the API server stays away.
        """
        from elastic.platforms.kubernetes.master.environment import open_environment

        return open_environment()


ENTRY: Final[PlatformEntry] = _KubernetesEntry()
