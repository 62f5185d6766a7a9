"""Other ways to a Docker engine and a registry than the plain ones, for tests."""

import base64
import hashlib
import http.server
import io
import shutil
import socket
import ssl
import subprocess
import threading
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = "/var/run/docker.sock"


@contextmanager
def tcp_engine(tls=None):
    """The engine behind a TCP port, as `(host, port)`; with TLS it asks for a certificate."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []
    threading.Thread(target=_accept, args=(listener, tls, connections), daemon=True).start()
    try:
        yield listener.getsockname()
    finally:
        # Closing alone would leave an accept that waits to take one more.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _accept(listener, tls, connections):
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connections.append(connection)
            threading.Thread(target=_serve, args=(connection, tls), daemon=True).start()


def _serve(connection, tls):
    with connection:
        try:
            client = tls.wrap_socket(connection, server_side=True) if tls else connection
        except OSError:
            # A client that showed no certificate we know.
            return
        with client, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(SOCKET)
            threading.Thread(target=_copy, args=(client, engine), daemon=True).start()
            _copy(engine, client)


def _copy(source, target):
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Certificates:
    """An authority, and what it signed for an engine at 127.0.0.1 and for its client."""

    def __init__(self, folder):
        self.ca = folder / "ca.pem"
        self._folder = folder
        subject = ["-subj", "/CN=elastic-test-authority", "-days", "2", "-nodes"]
        _openssl("req", "-x509", "-newkey", "rsa:2048", *subject, "-out", self.ca,
                 "-keyout", folder / "ca-key.pem")  # fmt: skip
        self.server = self._signed("server", "subjectAltName=IP:127.0.0.1")
        self.client = self._signed("cert", "extendedKeyUsage=clientAuth")

    def server_tls(self):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(*self.server)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _signed(self, name, extension):
        """A certificate and its key."""
        certificate = self._folder / f"{name}.pem"
        key = self._folder / ("key.pem" if name == "cert" else f"{name}-key.pem")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(extension)
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", key, "-out", request)  # fmt: skip
        _openssl("x509", "-req", "-in", request, "-CA", self.ca, "-days", "2", "-CAcreateserial",
                 "-CAkey", self._folder / "ca-key.pem", "-extfile", extensions,
                 "-out", certificate)  # fmt: skip
        return certificate, key


def _openssl(*arguments):
    program = shutil.which("openssl")
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, timeout=60)


@contextmanager
def http_server(handler, host="127.0.0.1"):
    """An HTTP server of its own thread, as `host:port`."""
    server = http.server.ThreadingHTTPServer((host, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class DenyingRegistry(http.server.BaseHTTPRequestHandler):
    """A registry that lets nobody in."""

    def do_GET(self):
        body = b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
        self.send_response(401)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("WWW-Authenticate", 'Basic realm="test"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        pass


def package_index(folder, **packages):
    """A handler for a package index with one empty module of each name and version."""
    files = {}
    for name, version in packages.items():
        wheel = f"{name}-{version}-py3-none-any.whl"
        path = Path(folder) / wheel
        path.write_bytes(_wheel(name, version))
        files[f"/{name.replace('_', '-')}/"] = f'<a href="/{wheel}">{wheel}</a>'.encode()
        files[f"/{wheel}"] = path.read_bytes()

    class Index(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = files.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html" if self.path[-1] == "/" else "a/b")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    return Index


def _wheel(name, version):
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": b"",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return buffer.getvalue()


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
