"""Masters' leases in an API server of this process, each master with a line of its own to it."""

import threading

from kubernetes.client.configuration import Configuration

from elastic.platforms.kubernetes.api.cluster import Cluster, Lease
from elastic.platforms.kubernetes.api.transport import Access
from elastic.platforms.kubernetes.master.environment import LeaseFence
from support.api_proxy import ApiProxy
from support.api_server_in_memory import NAMESPACE, NoPace

NAME = "elastic-j-master"
DURATION_S = 2
MARGIN_S = 0.5


class MastersLease:
    """What one master knows of the lease.

    Attributes:
        fence: Of the master.
        ended: Set when the master is told that another one takes over.
        is_known: Whether the API server knows its pod.
    """

    def __init__(self, api, identity):
        self._proxy = ApiProxy(api.url)
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._proxy.port}"
        access = Access(configuration, NAMESPACE, "a test")
        cluster = Cluster(access, NoPace(), patience_s=0.0, read_timeout_s=1.0)
        self.lease = Lease(cluster, NAMESPACE, NAME, identity, DURATION_S)
        self.ended = threading.Event()
        self.is_known = True
        self.fence = LeaseFence(
            self.lease,
            self.ended.set,
            lambda: self.is_known,
            renew_s=0.2,
            retry_s=0.05,
            margin_s=MARGIN_S,
        )

    def lose_contact(self):
        self._proxy.shut()

    def regain_contact(self):
        self._proxy.reopen()

    def close(self):
        self.fence.release()
        self._proxy.close()
