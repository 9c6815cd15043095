"""A process beside the server: less urgent, first to go if memory runs out, and gone with its starter.

Such a process must stay in the server's session. Linux makes each session a group of its own (`sched_autogroup`),
compares niceness only within a group, and shares the processors evenly among groups: in another session, processes of
any niceness would be as urgent as the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

#: How much less urgent it is than the server, which may have to share two cores with it.
NICENESS = 5


_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the system kill this process when the thread that started it ends, whatever either of them is doing then; a
    stopped one, too. Elsewhere than on Linux it notices by itself that its end of a socket is closed."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def step_back(score: int, niceness: int = NICENESS) -> None:
    """Be less urgent than the server, end with whoever started this, and let the kernel end the processes with the
    highest score first."""
    end_with_parent()
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))
