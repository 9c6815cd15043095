"""A process beside the server: less urgent, and the first to go if the machine runs out of memory.

Such a process must stay in the server's session. Linux makes each session a group of its own (`sched_autogroup`),
compares niceness only within a group, and shares the processors evenly among groups: in another session, processes of
any niceness would be as urgent as the server.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: How much less urgent it is than the server, which may have to share two cores with it.
NICENESS = 5


def step_back(score: int, niceness: int = NICENESS) -> None:
    """Be less urgent than the server, and let the kernel end the processes with the highest score first."""
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))
