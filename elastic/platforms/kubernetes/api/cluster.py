"""Reading and changing objects through one API server: what may be sent twice is sent again.

Nothing else sends requests to an API server. Which types it knows, and what an account may do with
them, everybody may ask. On that stand the end of a group of pods, and a Lease.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from elastic.platforms.kubernetes.api.resources import (
    LEASES,
    SELF_ACCESS_REVIEWS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.api.transport import (
    READ_TIMEOUT_S,
    RUN_HERE,
    Access,
    AwayError,
    Pace,
    RefusedError,
    Request,
    Transport,
    find_access,
    pause_before_retry,
    pod_access,
)

__all__ = ["AwayError", "Cluster", "RefusedError", "connect", "connect_from_pod"]

PATIENCE_S: Final = 10.0


class Cluster:
    """One API server, as one user. Safe to use from several threads."""

    def __init__(
        self,
        access: Access,
        pace: Pace | None = None,
        patience_s: float = PATIENCE_S,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        """Keep the parts; nothing is sent before the first request.

        Args:
            access: How to reach the API server.
            pace: Bounds the requests a second; a default one where not given.
            patience_s: How long a request is tried again while the API server is away or busy.
            read_timeout_s: How long an answer may keep silent; see `lines` for those that go on.
        """
        self.namespace = access.namespace
        self._transport = Transport(access, pace or Pace())
        self._patience_s = patience_s
        self._read_timeout_s = read_timeout_s
        self._rng = random.Random()  # noqa: S311 - jitter, no secret

    @property
    def server(self) -> str:
        """Its address."""
        return self._transport.server

    def now_s(self) -> float:
        """Seconds since the epoch by the server's clock, see `Transport.now_s`."""
        return self._transport.now_s()

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Manifest:
        """Read one object, or a list of them.

        Raises:
            RefusedError: The API server says no; `code` is 404 where there is no such object.
            AwayError: It does not answer.
        """
        return self._call("GET", path, query)

    def create(self, path: str, manifest: Manifest, dry_run: bool = False) -> Manifest:
        """Create an object below the path of its collection; returns it as it was stored.

        An earlier try may have got through, and only its answer was lost: what stands there with
        all of the labels is taken for that. So labels must tell it from whatever else may have had
        its name; what has none is never taken for ours.

        Raises:
            RefusedError: See `get`; `is_taken` where one of that name is there.
            AwayError: It does not answer.
        """
        # Servers before 1.25 do not know the second and drop unknown fields in silence.
        query = {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else None
        try:
            return self._call("POST", path, query, manifest)
        except RefusedError as error:
            if not error.is_taken or dry_run:
                raise
            own = self._own_object(path, manifest)
            if own is None:
                raise
            return own

    def patch(self, path: str, change: Manifest) -> Manifest:
        """Merge a change into an object (RFC 7386: null removes).

        Raises:
            RefusedError: See `get`.
            AwayError: It does not answer.
        """
        return self._call("PATCH", path, None, change, "application/merge-patch+json")

    def apply(self, path: str, manifest: Manifest, owner: str, force: bool = False) -> Manifest:
        """Have an object hold these fields, and not those that `owner` applied before and now not.

        Creates it where there is none; fields of others stay (server-side apply, since 1.22 for
        everybody).

        Args:
            path: Of the object.
            manifest: With `apiVersion` and `kind`, and nothing but what is to be so.
            owner: Whose fields these are (`fieldManager`).
            force: Take over fields that another owner has applied with other values.

        Raises:
            RefusedError: See `get`; its code is CONFLICT where another owner has other values.
            AwayError: It does not answer.
        """
        query = {"fieldManager": owner, "force": str(force).lower()}
        return self._call("PATCH", path, query, manifest, "application/apply-patch+yaml")

    def delete(
        self,
        path: str,
        grace_s: float | None = None,
        uid: str | None = None,
        version: str | None = None,
    ) -> None:
        """Ask for an object to be deleted; it is fine if there is none.

        Args:
            path: Of the object.
            grace_s: Seconds a pod may take to end; its own grace by default, 0 removes it at once.
            uid: Only if the object is still this one; another of the same name is left alone.
            version: Only if it has not changed since this `resourceVersion`.

        Raises:
            RefusedError: See `get`; its code is CONFLICT where the object has changed.
            AwayError: It does not answer.
        """
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options["propagationPolicy"] = "Background"
        if grace_s is not None:
            options["gracePeriodSeconds"] = int(-(-grace_s // 1))
        conditions = {"uid": uid, "resourceVersion": version}
        if wanted := {name: value for name, value in conditions.items() if value is not None}:
            options["preconditions"] = wanted
        try:
            self._call("DELETE", path, None, options)
        except RefusedError as error:
            is_other = uid is not None and error.code == HTTPStatus.CONFLICT
            if error.code != HTTPStatus.NOT_FOUND and not is_other:
                raise

    def lines(
        self,
        path: str,
        query: Mapping[str, str],
        read_timeout_s: float = READ_TIMEOUT_S,
        on_open: Callable[[], None] = lambda: None,
    ) -> Iterator[bytes]:
        """The lines of a watch or of a log, as they come, until the API server ends them.

        Args:
            path: Of what is read.
            query: Parameters.
            read_timeout_s: How long nothing may come.
            on_open: Called when the API server has begun to answer.

        Raises:
            RefusedError: See `get`.
            AwayError: It does not answer, or nothing came for `read_timeout_s`.
        """
        request = Request("GET", path, query, None, None, read_timeout_s)
        return self._transport.lines(request, on_open)

    # -- inside --------------------------------------------------------------------------------

    def _own_object(self, path: str, manifest: Manifest) -> Manifest | None:
        """What stands in the place of a new object, where it is the very same one."""
        metadata = manifest["metadata"]
        try:
            found = self._look(f"{path}/{metadata['name']}")
        except RefusedError:
            return None
        labels = metadata.get("labels") or {}
        there = found["metadata"].get("labels") or {}
        is_own = bool(labels) and labels.items() <= there.items()
        return found if is_own else None

    def _look(self, path: str) -> Manifest:
        """Read an object that we may create, and perhaps not read, as the Secrets of a job."""
        try:
            return self._call("GET", path)
        except RefusedError as error:
            if error.code != HTTPStatus.FORBIDDEN:
                raise
        # A change of nothing is answered with the object as it is.
        return self.patch(path, {})

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        request = Request(method, path, query, body, content_type, self._read_timeout_s)
        deadline_s = time.monotonic() + self._patience_s
        num_tries = 0
        while True:
            try:
                return self._transport.json(request)
            except (AwayError, RefusedError) as error:
                num_tries += 1
                left_s = deadline_s - time.monotonic()
                pause_s = pause_before_retry(
                    error, num_tries, left_s, self._rng, is_create=method == "POST"
                )
                if pause_s is None:
                    raise
            time.sleep(pause_s)


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    patience_s: float = PATIENCE_S,
    remedy: str = RUN_HERE,
) -> Cluster:
    """The cluster that kubectl would use, see `find_access`.

    Raises:
        PlatformError: Nothing is configured, or what is cannot be used.
    """
    return Cluster(find_access(kubeconfig, context, remedy), patience_s=patience_s)


def connect_from_pod(patience_s: float = PATIENCE_S) -> Cluster:
    """The cluster of the pod that this process runs in, as the pod's service account.

    Raises:
        PlatformError: This is no pod, or it has no service account.
    """
    return Cluster(pod_access(), patience_s=patience_s)


def is_served(cluster: Cluster, resource: Resource) -> bool:
    """Whether the API server knows a type in its version.

    Raises:
        RefusedError: The API server says no.
        AwayError: It does not answer.
    """
    groups = cluster.get("/apis")["groups"]
    served = {version["groupVersion"] for group in groups for version in group["versions"]}
    if resource.api_version not in served:
        return False
    try:
        found = cluster.get(f"/apis/{resource.api_version}")
    except RefusedError as error:
        # The last type of its group has just been removed.
        if error.code == HTTPStatus.NOT_FOUND:
            return False
        raise
    return any(each["name"] == resource.plural for each in found["resources"])


def may(cluster: Cluster, verb: str, resource: Resource, namespace: str | None) -> bool:
    """Whether this account has a right.

    Args:
        cluster: Whose API server is asked.
        verb: Such as `list`.
        resource: Objects of this type.
        namespace: Where they are; None for those of all namespaces.

    Raises:
        RefusedError: The API server says no.
        AwayError: It does not answer.
    """
    attributes: dict[str, Any] = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        **({} if namespace is None else {"namespace": namespace}),
    }
    review = {
        "apiVersion": SELF_ACCESS_REVIEWS.api_version,
        "kind": SELF_ACCESS_REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    answer = cluster.create(SELF_ACCESS_REVIEWS.path(), review)
    return bool((answer.get("status") or {}).get("allowed"))


# A Lease of the cluster: of several processes that try, one holds it, as long as it renews it.
#
# Who waits for a holder's end goes by its own clock and by how long it has seen no renewal, so that
# clocks need not agree. The loop that tries again and again is its caller's: what is done in
# between depends on who holds it.


DURATION_S: Final = 15
"""How long nobody else takes a lease that is not renewed; to be renewed several times within."""


class Lease:
    """One lease, as one of those who want it. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        duration_s: int = DURATION_S,
        owners: Sequence[Manifest] = (),
    ) -> None:
        """Keep the parts; nothing is sent before the first try.

        Args:
            cluster: Its patience must be well below `duration_s`, or a renewal comes too late.
            namespace: Where the lease is.
            name: Of the lease.
            identity: Of this process, and of no other that ever wants the lease.
            duration_s: See `DURATION_S`.
            owners: Entries for `metadata.ownerReferences`, with which the lease is removed.
        """
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._owners = list(owners)
        self._held_until_s = 0.0
        self._term = 0
        self._seen_version = ""
        self._seen_s = 0.0

    @property
    def is_held(self) -> bool:
        """Whether nobody else can hold it in this moment."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """Seconds in which nobody else can hold it; none where that is not positive."""
        return self._held_until_s - time.monotonic()

    @property
    def term(self) -> int:
        """How often the lease has changed hands before it came to us; grows with every holder."""
        return self._term

    def try_hold(self) -> bool:
        """Take the lease if it is free, renew it if it is ours; whether it is ours now.

        Raises:
            RefusedError: The API server does not let this user do so.
            AwayError: It does not answer; until `is_held` says otherwise the lease stays ours.
        """
        # Before the request, whose answer may take its time.
        began_s = time.monotonic()
        try:
            found = self._find()
            is_ours = self._create() if found is None else self._take(found)
        except RefusedError as error:
            # Another one was faster.
            if error.code != HTTPStatus.CONFLICT:
                raise
            is_ours = False
        self._held_until_s = began_s + self._duration_s if is_ours else 0.0
        return is_ours

    def release(self) -> None:
        """Let the next one have it at once, if it is ours.

        Raises:
            RefusedError: The API server does not let this user do so.
            AwayError: It does not answer.
        """
        self._held_until_s = 0.0
        found = self._find()
        if found is not None and found["spec"].get("holderIdentity") == self._identity:
            try:
                self._change(found, {"holderIdentity": None})
            except RefusedError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise

    def _find(self) -> Manifest | None:
        try:
            return self._cluster.get(LEASES.path(self._namespace, self._name))
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _create(self) -> bool:
        # Without labels, by which the client would take another one's for its own.
        metadata: Manifest = {"name": self._name, "namespace": self._namespace}
        if self._owners:
            metadata["ownerReferences"] = self._owners
        self._cluster.create(
            LEASES.path(self._namespace),
            {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": metadata,
                "spec": self._mine(0),
            },
        )
        self._term = 0
        return True

    def _take(self, found: Manifest) -> bool:
        spec = found["spec"]
        holder, term = spec.get("holderIdentity"), spec.get("leaseTransitions") or 0
        if holder == self._identity:
            self._change(found, {"renewTime": _now()})
        elif not holder or self._has_expired(found):
            term += 1
            self._change(found, self._mine(term))
        else:
            return False
        self._term = term
        return True

    def _has_expired(self, found: Manifest) -> bool:
        """Whether it was not renewed for its time, as far as we have watched it."""
        version, now_s = found["metadata"]["resourceVersion"], time.monotonic()
        if version != self._seen_version:
            self._seen_version, self._seen_s = version, now_s
        return now_s - self._seen_s > (found["spec"].get("leaseDurationSeconds") or 0)

    def _mine(self, term: int) -> Manifest:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration_s,
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": term,
        }

    def _change(self, found: Manifest, spec: Manifest) -> None:
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        path = LEASES.path(self._namespace, self._name)
        self._cluster.patch(path, {"metadata": version, "spec": spec})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
