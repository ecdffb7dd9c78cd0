"""A training that says nothing, and ends when it is told to."""

import signal
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(600)
