"""What a controller is told by its command line, with the defaults. Imports nothing large."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NAME: Final = "elastic-controller"
"""Of the lease, of the Deployment, and of the account and the rights that go with it."""

IMAGE: Final = "elastic:controller"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a controller is told.

    Attributes:
        namespace: Whose jobs are looked after, and where the lease is; that of the context, or of
            the pod, where None.
        all_namespaces: Look after the jobs of all of them.
        kinds: Names of kinds; all of them where empty.
        kubeconfig: A file; as kubectl finds it, or the account of the pod, where None.
        context: Of the kubeconfig; its current one where None.
        port: For health and metrics; 0 for none.
        num_workers: Passes at once.
        lease_name: Controllers that share it take turns.
        requests_per_second: To the API server, on average. Twice what Kubernetes gives its own
            controllers: one of a thousand jobs makes ten thousand pods.
    """

    namespace: str | None = None
    all_namespaces: bool = False
    kinds: Sequence[str] = ()
    kubeconfig: str | None = None
    context: str | None = None
    port: int = 8080
    num_workers: int = 8
    lease_name: str = NAME
    requests_per_second: float = 50.0


DEFAULTS: Final = Settings()
