"""A proxy between a client and the API server that can be cut, silenced and closed."""

import selectors
import socket
import threading
from urllib.parse import urlparse

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.transport import Pace, find_access


class CountingPace(Pace):
    """Lets every request through at once, and counts them."""

    def __init__(self):
        super().__init__()
        self.requests = 0

    def wait(self):
        self.requests += 1


class ApiProxy:
    """Forwards bytes, TLS and all, from a port of this machine to an API server."""

    def __init__(self, server):
        address = urlparse(server)
        self._target = (address.hostname, address.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs = []
        self._is_open = True
        self._silenced = []
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Break all connections; new ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                end.close()

    def shut(self):
        """Break all connections, and refuse new ones until `reopen`."""
        self._is_open = False
        self.cut()

    def reopen(self):
        """Take connections again."""
        self._is_open = True

    def silence(self):
        """Forward nothing more on the connections there are, and leave them open."""
        with self._lock:
            self._silenced += self._pairs
            self._pairs = []

    def close(self):
        self._is_closed = True
        self._listener.close()
        with self._lock:
            self._pairs += self._silenced
            self._silenced = []
        self.cut()

    def _accept(self):
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._is_open:
                client.close()
                continue
            server = socket.create_connection(self._target)
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client, server):
        others = {client: server, server: client}
        # Not select(), which takes no descriptor from 1024 on.
        selector = selectors.DefaultSelector()
        try:
            for end in others:
                selector.register(end, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(0.2)]
                with self._lock:
                    is_live = (client, server) in self._pairs
                if not is_live:
                    return
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    others[end].sendall(data)
        except (OSError, ValueError):
            return
        finally:
            selector.close()
            with self._lock:
                is_silenced = (client, server) in self._silenced
            if not is_silenced:
                client.close()
                server.close()


def cluster_through(proxy, kubeconfig, pace=None, patience_s=0.5):
    """A cluster whose requests go through the proxy."""
    access = find_access(kubeconfig)
    access.configuration.host = f"https://127.0.0.1:{proxy.port}"
    return Cluster(access, pace, patience_s)
