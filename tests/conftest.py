"""What every test relies on."""

import signal

# A shell starts what it runs in the background with SIGINT ignored, and children inherit that: the
# tests that press Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
