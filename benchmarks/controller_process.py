"""`python -m benchmarks.controller_process`: a whole controller, at a pace that bounds nothing."""

import argparse
import os
import sys
import threading

from benchmarks.processes import announce
from elastic.controller.assembly import assembled
from elastic.controller.run import run
from elastic.controller.settings import Settings

REQUESTS_PER_SECOND = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig")
    parser.add_argument("--port", type=int, required=True, help="of its metrics")
    arguments = parser.parse_args()
    settings = Settings(
        kubeconfig=arguments.kubeconfig,
        port=arguments.port,
        requests_per_second=REQUESTS_PER_SECOND,
    )
    stopping = threading.Event()

    def stop_with_input() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=stop_with_input, daemon=True).start()
    announce(pid=os.getpid())
    run(settings, assembled(), stopping)


if __name__ == "__main__":
    main()
