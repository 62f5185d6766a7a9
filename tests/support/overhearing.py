"""A port in front of another, which remembers all that goes through it."""

import contextlib
import socket
import threading


class Overheard:
    """What was said on all connections.

    Attributes:
        port: To call instead of the other.
        by_callers: What the callers said, one bytearray a connection.
        by_server: What they were answered.
    """

    def __init__(self, port):
        self.port = port
        self.by_callers = []
        self.by_server = []


@contextlib.contextmanager
def overhearing(port):
    """Pass all that comes on to a port of this machine, and remember it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        heard = Overheard(listening.getsockname()[1])
        accepting = threading.Thread(target=_accept, args=(listening, port, heard), daemon=True)
        accepting.start()
        yield heard
        listening.shutdown(socket.SHUT_RDWR)
    accepting.join()


def _accept(listening, port, heard):
    while True:
        try:
            caller, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(caller, port, heard), daemon=True).start()


def _serve(caller, port, heard):
    heard.by_callers.append(asked := bytearray())
    heard.by_server.append(answered := bytearray())
    with caller, socket.create_connection(("127.0.0.1", port)) as server:
        back = threading.Thread(target=_pass_on, args=(server, caller, answered), daemon=True)
        back.start()
        _pass_on(caller, server, asked)
        back.join()


def _pass_on(source, target, said):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            said += data
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
