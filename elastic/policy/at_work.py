"""Which workers compute for the open group, and which of them the others wait for."""


class AtWork:
    """The workers that compute a gradient on the current version. The time comes in.

    One for which another has waited in vain is *late*: nobody waits for it any more until it is
    heard of. So a worker that hangs costs the others one wait, not one an update, and of those
    that have waited only as many go on as its group lacks.
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._late: set[str] = set()

    def __len__(self) -> int:
        return len(self._since_s)

    def __contains__(self, worker: str) -> bool:
        return worker in self._since_s

    @property
    def num_awaited(self) -> int:
        """Those that may still fill the group: all but the late ones."""
        return len(self._since_s) - len(self._late)

    def begins(self, worker: str, now_s: float) -> None:
        """Note that a worker computes a minibatch from now on, whatever it did before."""
        self._since_s[worker] = now_s
        self._late.discard(worker)

    def ends(self, worker: str) -> bool:
        """Note that it computes none; returns whether it did."""
        self._late.discard(worker)
        return self._since_s.pop(worker, None) is not None

    def give_up(self, waited_since_s: float) -> None:
        """Another has waited since then, as long as it may have to: who was silent is late."""
        self._late.update(w for w, since_s in self._since_s.items() if since_s <= waited_since_s)
