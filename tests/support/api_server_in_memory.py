"""An API server of this process: real HTTP, objects in memory, and faults as a test wants them.

It speaks what `elastic.platforms.kubernetes.api` asks for, for any group, version and type: whoever
posts an object of a type has it. `tests/controller/test_api_contract.py` holds it to what the real
one does. Pods are started and ended by `support.kubelet_in_memory`.
"""

import json
import re
import socket
import socketserver
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import parse_qsl, unquote

import yaml
from kubernetes.client.configuration import Configuration

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import LEASES, PODS, Resource
from elastic.platforms.kubernetes.api.transport import Access, Pace
from support.api_objects import Objects, Place, RefusalError, encoded, selector

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
BUILT_IN = (
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("batch", "v1", "jobs", "Job"),
    LEASES,
    PODS,
)
PATH = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/(?P<rest>.+))?")
USER = "tester"
NAMESPACE = "team"


class UnknownPageError(Exception):
    """There is no such path: the answer is no Status, but what any web server says."""


class NoPace(Pace):
    """Lets every request through at once."""

    def wait(self):
        pass


@dataclass(frozen=True)
class Asked:
    """One request, as it came.

    Attributes:
        time_s: By the monotonic clock.
        user: By its token; empty where it has none.
    """

    time_s: float
    user: str
    verb: str
    place: Place


@dataclass
class Rule:
    """Requests that are refused; `times` is None for all."""

    verb: str
    plural: str
    error: RefusalError
    times: int | None


class InMemoryApi:
    """An API server. `objects` is what it keeps, for tests that change it without a request.

    Attributes:
        on_request: Called with each request, as `Asked`, before it is carried out.
    """

    def __init__(self, now_s=time.time):
        self.objects = Objects(now_s)
        self.logs = {}
        """By namespace, pod and container: the lines that it has written."""
        self.requests = []
        self.on_request = lambda asked: None
        self.is_away = False
        self.is_closed = False
        self._rules = []
        self._denied = set()
        self._uninstalled = set()
        self._known = {}
        self.serve(*BUILT_IN)
        self._lock = threading.Lock()
        self._connections = set()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.api = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="api server", daemon=True
        )
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.cut()

    def cluster(self, patience_s=0.5, pace=None, namespace=NAMESPACE):
        """A client of this server."""
        configuration = Configuration()
        configuration.host = self.url
        configuration.connection_pool_maxsize = 64
        return Cluster(Access(configuration, namespace, "a test"), pace or NoPace(), patience_s)

    def kubeconfig(self, path, user, namespace=NAMESPACE):
        """Write a kubeconfig that names this server, and a user whose token is the name."""
        sections = {
            "contexts": [
                {"name": "x", "context": {"cluster": "c", "user": user, "namespace": namespace}}
            ],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": user, "user": {"token": user}}],
        }
        head = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
        path.write_text(yaml.safe_dump(head | sections))
        return path

    # -- what went on --------------------------------------------------------------------------

    @property
    def writes(self):
        """Verb and path of each request that changes something, but for those about events."""
        return [
            (verb, path)
            for verb, path in list(self.requests)
            if verb in VERBS.values() and "/events" not in path
        ]

    # -- faults --------------------------------------------------------------------------------

    def cut(self):
        """Break all connections; new ones are taken."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.objects.wake_all()

    @contextmanager
    def away(self):
        """No request is answered meanwhile."""
        self.is_away = True
        self.cut()
        try:
            yield
        finally:
            self.is_away = False

    def refuse(self, verb, plural, code, message, reason="", times=1):
        """Refuse requests for a type; `times` is None for all that follow."""
        self._rules.append(Rule(verb, plural, RefusalError(code, reason, message), times))

    def relent(self):
        """Refuse nothing more."""
        self._rules.clear()

    def deny(self, plural, *verbs):
        """Take the rights to a type away; to every verb where none is named."""
        self._denied |= {(plural, verb) for verb in verbs or ("*",)}

    def allow(self, plural):
        """Give the rights to a type back."""
        self._denied = {each for each in self._denied if each[0] != plural}

    def serve(self, *resources):
        """Tell of types before anybody has asked for objects of them."""
        for each in resources:
            self._known.setdefault((each.group, each.version), set()).add(each.plural)

    def uninstall(self, plural):
        """Have no such type."""
        self._uninstalled.add(plural)

    def install(self, plural):
        """Have the type again."""
        self._uninstalled.discard(plural)

    # -- for connections -----------------------------------------------------------------------

    def enter(self, connection):
        with self._lock:
            self._connections.add(connection)

    def leave(self, connection):
        with self._lock:
            self._connections.discard(connection)

    def admit(self, verb, place):
        """Refuse what is denied, not installed or to fail."""
        self._known.setdefault((place.group, place.api_version), set()).add(place.plural)
        if (place.plural, verb) in self._denied or (place.plural, "*") in self._denied:
            where = f' in the namespace "{place.namespace}"' if place.namespace else ""
            raise RefusalError(
                403,
                "Forbidden",
                f'{place.plural} is forbidden: User "{USER}" cannot {verb} resource '
                f'"{place.plural}" in API group "{place.group}"{where or " at the cluster scope"}',
            )
        if place.plural in self._uninstalled:
            raise UnknownPageError
        for rule in self._rules:
            if (rule.verb, rule.plural) == (verb, place.plural) and rule.times != 0:
                rule.times = None if rule.times is None else rule.times - 1
                raise rule.error

    def groups(self):
        """The groups and versions of all types, as far as they are known, see `serve`."""
        versions = {}
        for (group, version), plurals in sorted(self._known.items()):
            if group and plurals - self._uninstalled:
                entry = {"groupVersion": f"{group}/{version}", "version": version}
                versions.setdefault(group, []).append(entry)
        listed = [{"name": name, "versions": each} for name, each in versions.items()]
        return {"kind": "APIGroupList", "groups": listed}

    def discover(self, group, version):
        """The types of a group, as far as they are known."""
        known = self._known.get((group, version), set()) - self._uninstalled
        if not known:
            raise UnknownPageError
        return {
            "kind": "APIResourceList",
            "resources": [{"name": plural} for plural in sorted(known)],
        }


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        """Connections break in these tests; what is wrong in here is told to the client."""


class _Connection(socketserver.StreamRequestHandler):
    """One connection. HTTP is read by hand: the library's parser takes longer than all the rest."""

    wbufsize = -1
    disable_nagle_algorithm = True

    def handle(self):
        self.api = self.server.api
        self.api.enter(self.connection)
        try:
            while self._one_request():
                self.wfile.flush()
        except (OSError, ValueError):
            pass
        finally:
            self.api.leave(self.connection)
            with suppress(OSError):
                self.wfile.close()

    def _one_request(self):
        line = self.rfile.readline()
        if not line:
            return False
        method, target, _ = line.decode().split()
        length, content_type, self._user = 0, "", ""
        while (header := self.rfile.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            match name.lower():
                case b"content-length":
                    length = int(value)
                case b"content-type":
                    content_type = value.decode().strip()
                case b"authorization":
                    self._user = value.decode().split()[-1]
        raw = self.rfile.read(length)
        if self.api.is_away or self.api.is_closed:
            return False
        path, _, query_text = target.partition("?")
        query = dict(parse_qsl(query_text))
        try:
            return self._answer(method, unquote(path), query, content_type, raw)
        except RefusalError as error:
            self._send(_status(error), error.code)
        except UnknownPageError:
            self.wfile.write(
                b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n"
                b"Content-Length: 19\r\n\r\n404 page not found\n"
            )
        return True

    def _answer(self, method, path, query, content_type, raw):
        if path == "/apis":
            self._send(self.api.groups())
            return True
        found = PATH.fullmatch(path)
        if found is None:
            raise UnknownPageError
        group, version = found["group"] or "", found["version"]
        if found["rest"] is None:
            self._send(self.api.discover(group, version))
            return True
        place = _place(group, version, found["rest"])
        verb = VERBS.get(method) or ("get" if place.name else "list")
        verb = "watch" if query.get("watch") in ("true", "1") else verb
        self.api.requests.append((verb, path))
        self.api.on_request(Asked(time.monotonic(), self._user, verb, place))
        self.api.admit(verb, place)
        if verb == "watch":
            self._watch(place, query)
            # Kept, as a real one keeps it: the client may have sent its next request already.
            return self._is_open()
        if place.part == "log":
            self._log(place, query)
            return True
        body = json.loads(raw) if raw else {}
        answer = getattr(self, f"_{verb}")(place, query, content_type, body)
        self._send(answer, 201 if verb == "create" else 200)
        return True

    def _get(self, place, *_):
        return _as_version(self.api.objects.get(place), place)

    def _log(self, place, query):
        """What a container has written, each line with its time; it writes no more."""
        container = query.get("container", "")
        pod = self.api.objects.get(Place("", "v1", "pods", place.namespace, place.name))
        if container not in [each["name"] for each in pod["spec"]["containers"]]:
            raise RefusalError(400, "BadRequest", f"container {container} is not valid for pod")
        lines = self.api.logs.get((place.namespace, place.name, container), [])
        stamped = [f"2026-01-01T00:00:{number:02}.5Z {line}\n" for number, line in enumerate(lines)]
        raw = "".join(stamped[-int(query.get("tailLines", len(stamped) or 1)) :]).encode()
        head = f"HTTP/1.1 200 .\r\nContent-Type: text/plain\r\nContent-Length: {len(raw)}\r\n\r\n"
        self.wfile.write(head.encode() + raw)

    def _list(self, place, query, *_):
        items, version = self.api.objects.list(place, selector(query))
        return {
            "kind": "List",
            "apiVersion": _api_version(place),
            "metadata": {"resourceVersion": str(version)},
            "items": [_as_version(item, place) for item in items],
        }

    def _create(self, place, query, _, body):
        return self.api.objects.create(place, body, dry_run=query.get("dryRun") == "All")

    def _update(self, place, query, _, body):
        return self.api.objects.replace(place, body)

    def _patch(self, place, query, content_type, body):
        match content_type:
            case "application/merge-patch+json":
                return _as_version(self.api.objects.merge(place, body), place)
            case "application/apply-patch+yaml":
                return self.api.objects.apply(place, body)
        raise RefusalError(415, "UnsupportedMediaType", f"no patch of type {content_type}")

    def _delete(self, place, query, _, body):
        return self.api.objects.delete(place, body)

    def _send(self, content, code=200):
        raw = encoded(content)
        head = (
            f"HTTP/1.1 {code} .\r\nContent-Type: application/json\r\n"
            f"Date: {self._date()}\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        self.wfile.write(head.encode() + raw)

    def _date(self):
        return formatdate(self.api.objects.now_s(), usegmt=True)

    # -- watches -------------------------------------------------------------------------------

    def _watch(self, place, query):
        """Tell what has happened since a version, then what happens, until the time is over."""
        self.wfile.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: {self._date()}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        self.wfile.flush()
        ends_s = time.monotonic() + float(query.get("timeoutSeconds", 1800))
        matches = selector(query)
        try:
            version = self._begin(place, query, matches)
            while time.monotonic() < ends_s and self._is_open():
                version = self._tell(place, version, matches, ends_s)
            if query.get("allowWatchBookmarks") == "true" and self._is_open():
                self._bookmark(place, version)
        except RefusalError as error:
            self._line("ERROR", _status(error))
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _is_open(self):
        with self.api._lock:
            return self.connection in self.api._connections

    def _begin(self, place, query, matches):
        asked = query.get("resourceVersion", "")
        if asked not in ("", "0"):
            return int(asked)
        items, version = self.api.objects.list(place, matches)
        for item in items:
            self._line("ADDED", _as_version(item, place))
        return version

    def _tell(self, place, version, matches, ends_s):
        objects = self.api.objects
        with objects.lock:
            events = objects.events_after(place, version)
            if not events:
                objects.wait(place, max(0.0, ends_s - time.monotonic()))
                return version
        for event in events:
            version = event.version
            metadata = event.new["metadata"]
            if not place.namespace or metadata.get("namespace") == place.namespace:
                kind = _seen_as(event, matches)
                if kind:
                    self._line(kind, _as_version(event.new, place))
        self.wfile.flush()
        return version

    def _bookmark(self, place, version):
        objects = self.api.objects
        with objects.lock:
            if not objects.events_after(place, version):
                version = objects.version
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        self._line("BOOKMARK", {"apiVersion": _api_version(place), "metadata": metadata})

    def _line(self, kind, item):
        raw = encoded({"type": kind, "object": item}) + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(raw), raw))


def _place(group, version, rest):
    parts = rest.split("/")
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, part = (*parts, "", "")[:3]
    return Place(group, version, plural, namespace, name, part)


def _api_version(place):
    return f"{place.group}/{place.api_version}" if place.group else place.api_version


def _as_version(item, place):
    """An object in the version that was asked for, as conversion by name alone has it."""
    wanted = _api_version(place)
    return item if item.get("apiVersion") == wanted else {**item, "apiVersion": wanted}


def _seen_as(event, matches):
    """What a change is to those who see what matches; None for nothing."""
    is_in = event.kind != "DELETED" and matches(event.new)
    was_in = event.old is not None and matches(event.old)
    if is_in:
        return "MODIFIED" if was_in else "ADDED"
    return "DELETED" if was_in else None


def _status(error):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "code": error.code,
    }
