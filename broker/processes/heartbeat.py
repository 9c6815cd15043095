"""Tells whether a process beside the server still runs.

The server looks at it ten times a second; two signs say no:

    stopped    by SIGSTOP, say. The kernel knows it, of every process and at once. So the limit is short
    silent     it owes a word, a report or an answer, and says none: a disk that hangs, or a bug. It may as well be busy
               in compiled code or SQLite, so the limit is long

Pings would need a thread in each process: its event loop, busy for seconds, does not answer. But such a thread answers
also when the loop hangs. What a process says anyway is as good as a ping, and stopping is the case that needs haste.
"""

from __future__ import annotations

import os

#: Seconds that a process may be stopped before it is given up: a debugger or `kill -STOP` by mistake may be quicker.
STOPPED_S = 2.0
#: Seconds between two looks from which on it was the server itself that stood still, and could not have heard a word.
PAUSE_S = 1.0


class Heartbeat:
    def __init__(self, process: int, now: float) -> None:
        self._process = process
        self._heard_at = self._looked_at = self._ran_at = now

    def heard(self, now: float) -> None:
        """It said something, or begins to owe something only now."""
        self._heard_at = now

    def lost(self, now: float, silence_s: float) -> str | None:
        """Why the process should be killed, if it should; called often. `silence_s` is how long it may say nothing."""
        if now - self._looked_at > PAUSE_S:
            self._heard_at = self._ran_at = now
        self._looked_at = now
        if not is_stopped(self._process):
            self._ran_at = now
        if now - self._ran_at >= STOPPED_S:
            return f"it was stopped (SIGSTOP) for {now - self._ran_at:.1f} s"
        if now - self._heard_at > silence_s:
            return f"it said nothing for {now - self._heard_at:.1f} s"
        return None


def is_stopped(process: int) -> bool:
    """Whether a child is stopped now; False where the system cannot tell, and for one that has ended. It changes
    nothing: who waits for the end of the child still hears of it."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:  # it is no child of ours, or has been reaped
        return False
