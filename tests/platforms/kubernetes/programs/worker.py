"""Stands in for a worker in a pod: it writes lines until it is ended."""

import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for number in range(1, 18000):
    print(f"{os.environ['ELASTIC_REPLICA']} line {number}")
    time.sleep(0.5)
