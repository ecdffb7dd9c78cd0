"""What all tests share: the signals of a terminal, whatever has started them."""

from __future__ import annotations

import signal

# A background job of a shell ignores Ctrl-C, and one under nohup the hang-up; programs that tests start would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
