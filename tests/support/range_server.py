"""A web server process that answers range requests, as object stores do.

    python range_server.py FOLDER [--no_ranges]

Prints its port. `/secret/…` is refused, and `/flaky/…` fails every second time.
"""

import argparse
import itertools
import re
import subprocess
import sys
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def served(folder, *flags):
    """The address of a server process over a folder."""
    command = [sys.executable, __file__, str(folder), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def serve(folder, has_ranges):
    counter = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body in one packet, which nobody waits to acknowledge

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self._answer(has_body=False)

        def do_GET(self):
            self._answer(has_body=True)

        def _answer(self, has_body):
            name = self.path.partition("?")[0].lstrip("/")
            if name.startswith("secret/"):
                return self._send(403, b"", has_body)
            if name.startswith("flaky/") and has_body and next(counter) % 2 == 0:
                return self._send(503, b"", has_body)
            path = folder / name.removeprefix("flaky/")
            if path.is_dir():
                # As servers do: the link of a folder ends with a slash.
                names = [f"{one.name}{'/' * one.is_dir()}" for one in path.iterdir()]
                # And Apache's offers the same list in other orders.
                links = "".join(f'<a href="{name}">{name}</a>' for name in ["?C=N;O=D", *names])
                return self._send(200, links.encode(), has_body)
            if not path.is_file():
                return self._send(404, b"", has_body)
            data, found = path.read_bytes(), path.stat()
            headers = {
                "ETag": f'"{found.st_mtime_ns}"',
                "Last-Modified": formatdate(found.st_mtime),
            }
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if asked is None or not has_ranges:
                return self._send(200, data, has_body, headers)
            start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            return self._send(206, data[start:end], has_body, headers)

        def _send(self, status, data, has_body, headers=None):
            self.send_response(status)
            headers = {
                "Content-Length": str(len(data)),
                "Accept-Ranges": "bytes",
                **(headers or {}),
            }
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if has_body:
                self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--no_ranges", action="store_true")
    parsed = parser.parse_args()
    serve(parsed.folder, not parsed.no_ranges)
