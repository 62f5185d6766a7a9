"""A Lease of the cluster: of several processes that try, one holds it, as long as it renews it.

Who waits for a holder's end goes by its own clock and by how long it has seen no renewal, so that
clocks need not agree. The loop that tries again and again is its caller's: what is done in between
depends on who holds it.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import LEASES, Manifest

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
