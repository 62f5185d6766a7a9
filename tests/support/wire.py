"""What goes over the network of this machine, as whoever listens there sees it."""

import socket
import struct
import threading
from collections import defaultdict

_ALL_PROTOCOLS = 3
_IP = 0x0800
_TCP = 6
_MAX_BYTES = 1 << 16
_SO_RCVBUFFORCE = 33
"""Of `man socket.7`; Python has no name for it."""
_LOOK_S = 0.2
_BUFFER_BYTES = 64 << 20
"""All packets of the machine wait in it while a busy core keeps the listener from them."""
_SYN = 0x02
_FLAGS_AT = 13


class Wire:
    """Listens to some TCP ports of all machines and pods; takes a right that root has.

    Heard are connections that begin while it listens: addresses and ports of jobs that have ended
    are given again, and others' connections stay as they are.
    """

    def __init__(self, *ports):
        self._ports = ports
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_PROTOCOLS)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.settimeout(_LOOK_S)
        self._said = defaultdict(list)
        self._begun = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="wire", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def said_to(self, address, port):
        """What was sent to a port at an address, by the other end of each connection."""
        place = address, port
        return {ends[0]: payloads for ends, payloads in self._said.items() if ends[1] == place}

    def said_by(self, address, port):
        """What a port at an address answered, by the other end of each connection."""
        place = address, port
        return {ends[1]: payloads for ends, payloads in self._said.items() if ends[0] == place}

    def _listen(self):
        while not self._is_over.is_set():
            try:
                packet, link = self._socket.recvfrom(_MAX_BYTES)
            except TimeoutError:
                continue
            if link[1] == _IP:
                self._note(packet)

    def _note(self, packet):
        start = 4 * (packet[0] & 0xF)
        if packet[9] != _TCP or len(packet) < start + 20:
            return
        source, target = struct.unpack_from("!HH", packet, start)
        [length] = struct.unpack_from("!H", packet, 2)
        payload = packet[start + 4 * (packet[start + 12] >> 4) : length or None]
        if not {source, target}.intersection(self._ports):
            return
        hosts = [socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16)]
        pair = (hosts[0], source), (hosts[1], target)
        connection = frozenset(pair)
        if packet[start + _FLAGS_AT] & _SYN:
            self._begun.add(connection)
        if payload and connection in self._begun:
            self._said[pair].append(payload)
