"""The command line's side of the Kubernetes platform."""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

from elastic.errors import JobNotFoundError, JobSpecError
from elastic.platforms.base import BoardInCluster, LogLine, has_ended, unheard, writes_no_events
from elastic.platforms.images import ImageRequest, build_and_push
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.job.logs import follow_logs, read_logs, read_previous_logs
from elastic.platforms.kubernetes.job.objects import (
    JobObjects,
    forget_job,
    kill_job,
    listed_jobs,
    recorded,
)
from elastic.platforms.kubernetes.job.submission import BuildImage, explained, submit_job
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import spec_of, submission_of
from elastic.platforms.kubernetes.objects.podspec import Hook, Job
from elastic.platforms.kubernetes.pods import has_ended as pod_has_ended
from elastic.platforms.kubernetes.pods import own_state, why_pending
from elastic.policy.accounts import only_here
from elastic.spec.job import JobSpec
from elastic.spec.status import JobStatus
from elastic.spec.values import Since


def find_board(objects: JobObjects) -> BoardInCluster:
    """Where the curves of a job can be looked at.

    Raises:
        JobNotFoundError: No such job.
        JobSpecError: It writes no events, or they went with its master's pod.
        PlatformError: The pod cannot be started again.
    """
    record = objects.record()
    spec = spec_of(record)
    if not spec.tensorboard_log_dir:
        raise writes_no_events(objects.job_name)
    if not manifests.are_events_shared(spec):
        return _beside_master(objects)
    name = names.tensorboard_name(objects.job_name)
    pod = objects.find(PODS, name)
    if pod is None or pod_has_ended(pod):
        if pod is not None:
            objects.delete(PODS, name, 0.0)
        pod = _start(objects, record)
    return BoardInCluster(objects.namespace, name, names.TENSORBOARD_PORT, _why_not_yet(pod))


def _beside_master(objects: JobObjects) -> BoardInCluster:
    master = objects.find_master()
    if master is None or "running" not in own_state(master):
        raise JobSpecError(
            f"the events of job {objects.job_name!r} are in its master's pod, which does not run: "
            "have them on a volume the next time: --volume claim_name=CLAIM,mount_path=/results "
            "--tensorboard_log_dir /results/events"
        )
    note = "where its events are too, which end with it"
    return BoardInCluster(
        objects.namespace, names.master_name(objects.job_name), names.TENSORBOARD_PORT, note
    )


def _start(objects: JobObjects, record: Manifest) -> Manifest:
    submission, master = submission_of(record), objects.find_master()
    hook = next(
        (Hook(k, record["data"][k]) for k in names.HOOK_KEYS.values() if k in record["data"]), None
    )
    job = Job(
        spec_of(record),
        objects.namespace,
        submission.uid,
        submission.image,
        hook,
        owner=submission.owner,
    )
    node = None if master is None else master["spec"].get("nodeName")
    owner = None if master is None else names.Owner.of(master)
    affinity = None if node is None else manifests.board_on_node(node)
    manifest = manifests.board_pod(job, owner, affinity)
    try:
        return objects.cluster.create(PODS.path(objects.namespace), manifest)
    except RefusedError as error:
        raise explained(error, objects.cluster.server, job, manifest) from error


def _why_not_yet(pod: Manifest) -> str:
    if "running" in own_state(pod):
        return ""
    return f"not yet: {why_pending(pod) or 'it is being started'}"


def _build_silently(request: ImageRequest) -> str:
    return build_and_push(request, lambda _: None)


class KubernetesPlatform:
    """Jobs of one namespace, all through the API server."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None = None,
        build_image: BuildImage = _build_silently,
    ) -> None:
        """Keep the parts; nothing is sent before the first call.

        Args:
            namespace: Where the jobs are; that of the kubeconfig's context by default.
            build_image: Makes the image of a submitted job, and may tell how far it is.
        """
        self._cluster = cluster
        self._namespace = namespace or cluster.namespace
        self._build_image = build_image

    def submit(self, spec: JobSpec) -> None:
        """Build the job's image, start its master and return.

        Raises:
            JobSpecError: The job has no name, or a setting names what is not there.
            JobExistsError: A job of that name runs, or its kept state would be overwritten.
            ImageError: The image cannot be built or pushed.
            PlatformError: The cluster does not take the job; nothing was left behind.
        """
        if not spec.job_name:
            raise JobSpecError("the job has no name: pass --job_name")
        submit_job(self._job(spec.job_name), spec, self._build_image)

    @property
    def cluster(self) -> Cluster:
        """Where the jobs are."""
        return self._cluster

    @property
    def namespace(self) -> str:
        """Whose jobs these are."""
        return self._namespace

    def now_s(self) -> float:
        """Seconds since the epoch by the API server's clock; by ours before its first answer."""
        return self._cluster.now_s()

    def jobs(self) -> Sequence[str]:
        """Names of all known jobs, running or ended, oldest first."""
        return [each.place[1] for each in recorded(self._cluster, self._namespace)]

    def statuses(self) -> Sequence[JobStatus]:
        """`status` of all `jobs`, from two lists whatever their number.

        It takes a third where workers were left behind by a job that has ended.
        """
        return [each.status for each in listed_jobs(self._cluster, self._namespace)]

    def status(self, job_name: str) -> JobStatus:
        """What the master published last, corrected by what its pod shows.

        Raises:
            JobNotFoundError: No such job.
        """
        return self._job(job_name).status()

    def spec(self, job_name: str) -> JobSpec:
        """The specification the job was submitted with, as its pods have it.

        Raises:
            JobNotFoundError: No such job.
        """
        return spec_of(self._job(job_name).record())

    def submitted_s(self, job_name: str) -> float:
        """When it was submitted last, by the API server's clock.

        Raises:
            JobNotFoundError: No such job.
        """
        return submission_of(self._job(job_name).record()).submitted_s

    def board(self, job_name: str) -> BoardInCluster:
        """The pod of the job's TensorBoard, which is started again where it has ended.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: It writes no events, or they went with its master's pod.
            PlatformError: The pod cannot be started again.
        """
        return find_board(self._job(job_name))

    def scale(self, job_name: str, num_workers: int) -> None:
        """Ask a running job for another number of workers.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: The job has ended, or the number is outside its range.
        """
        job = self._job(job_name)
        record = job.record()
        status = job.status(record)
        if status.phase.is_final:
            raise has_ended(job_name, status)
        allowed = spec_of(record).num_workers
        if not allowed.minimum <= num_workers <= allowed.maximum:
            raise JobSpecError(
                f"{num_workers} workers are outside the range {allowed} of job {job_name!r}: "
                "choose a number within it, or submit the job with another --num_workers MIN:MAX"
            )
        job.ask(num_workers=num_workers, autoscaled_for="", held_until_s=None, autoscaled_s=None)

    def kill(
        self, job_name: str, timeout_s: float, on_wait: Callable[[str], None] = unheard
    ) -> None:
        """Cancel the job and wait until none of its pods is left; idempotent.

        Raises:
            JobNotFoundError: No such job.
            StillAliveError: A pod was still there after `timeout_s`.
        """
        kill_job(self._job(job_name), timeout_s, on_wait)

    def would_lose(self, status: JobStatus) -> str:
        """What would be lost if a job that has ended were forgotten; empty where nothing is.

        What a master kept in its pod is lost with that already: nothing can read it there. What it
        kept on a volume stays, but only the job's record tells in which folder.

        Raises:
            JobNotFoundError: No such job.
        """
        record = self._job(status.job_name).record()
        return only_here(status, names.STATE_PATH, names.STATE_KEY in (record.get("data") or {}))

    def forget(self, job_name: str) -> None:
        """Delete all objects of a job that has ended.

        Raises:
            JobNotFoundError: No such job.
            JobExistsError: It goes on, has a pod that does, or is submitted at this moment.
        """
        forget_job(self._job(job_name))

    def logs(
        self,
        job_name: str,
        replicas: Sequence[str],
        follow: bool,
        tail: int | None,
        previous: bool = False,
        since: Since | None = None,
    ) -> Iterator[LogLine]:
        """Lines of the named replicas or roles (all when empty), prefixed by replica.

        With `follow`, goes on until the job has ended; `tail` then limits where it begins. With
        `previous`, those of the life before: all of a container that was restarted in place, the
        last ones of a worker that was replaced.

        Raises:
            JobNotFoundError: No such job.
            PlatformError: Without `follow`: a replica was named that has no log.
        """
        job = self._job(job_name)
        record = job.record()
        since_s = None if since is None else since.at_s(self._cluster.now_s())
        if previous:
            pods, words = job.pods(), job.last_words()
            return read_previous_logs(self._cluster, pods, words, replicas, tail, since_s)
        if not follow:
            return read_logs(self._cluster, job.pods(), replicas, tail, since_s)

        def look() -> tuple[Sequence[Manifest], bool]:
            # Asked first: what pods have written by the end is in their logs when they are read.
            has_ended = self._has_ended(job, record)
            return job.pods(), has_ended

        return follow_logs(self._cluster, look, replicas, tail, since_s)

    def _has_ended(self, job: JobObjects, record: Manifest) -> bool:
        try:
            return job.status(record).phase.is_final
        except JobNotFoundError:
            return True

    def _job(self, job_name: str) -> JobObjects:
        # In a path, what stands before a `#` or a `?` would be the name of another job.
        if quote(job_name, safe="") != job_name:
            raise JobNotFoundError(
                f"no job {job_name!r} in namespace {self._namespace!r}: the name of a job has "
                "lower-case letters, digits and '-' only"
            )
        return JobObjects(self._cluster, self._namespace, job_name)
