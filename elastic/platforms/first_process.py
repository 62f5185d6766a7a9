"""Imported before all else by programs that may be the first process of a container.

The kernel keeps signals from such a process for which it has no handler, and what a program imports
takes seconds: one that was asked to end meanwhile did not hear of it, and its pod stayed for all of
the time that it is given to end. It ends now, as any other process does that has no handler yet.
"""

import os
import signal

if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
