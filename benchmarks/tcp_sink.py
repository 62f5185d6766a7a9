"""`python -m benchmarks.tcp_sink BYTES`: reads runs of so many bytes and answers each with one."""

import socket
import sys

import numpy as np

from benchmarks.processes import announce


def main() -> None:
    buffer = np.empty(int(sys.argv[1]), np.uint8).data
    with socket.create_server(("127.0.0.1", 0)) as server:
        announce(port=server.getsockname()[1])
        connection, _ = server.accept()
    with connection:
        while True:
            received = 0
            while received < len(buffer):
                count = connection.recv_into(buffer[received:])
                if count == 0:
                    return
                received += count
            connection.sendall(b"\0")


if __name__ == "__main__":
    main()
