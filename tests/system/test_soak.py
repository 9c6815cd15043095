"""Minutes of faults and load: memory and open files stay flat, and every promise holds at the end."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.support.cluster import ROOT, SERVER, Cluster, cluster
from tests.support.faults import Fault, Workload, happen, plan, workload
from tests.support.links import descriptors

MINUTES = float(os.environ.get("HULLCAST_SOAK_MINUTES", "4"))
#: Growth of this process (all members, clients, and what the tests themselves remember) after it has warmed up.
MOST_MEMORY = 250 << 20
MOST_FILES = 40


@pytest.mark.soak
async def test_memory_and_files_stay_flat_through_minutes_of_faults(tmp_path: Path) -> None:
    seconds = 60 * MINUTES
    rng = Random(MINUTES)
    async with (
        asyncio.timeout(4 * seconds + 120),
        cluster(data=tmp_path) as c,
        workload(c, Random(1), pause_s=0.1) as work,
    ):
        work.resyncs_allowed = True
        for fault in plan(rng, [ROOT, "g1", "g2", SERVER], 6):
            await _one(fault, c, work)
        gc.collect()
        memory, files = psutil.Process().memory_info().rss, len(descriptors())
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            (fault,) = plan(rng, [ROOT, "g1", "g2", SERVER], 1)
            await _one(fault, c, work)
            assert len(descriptors()) - files < MOST_FILES
        await work.wait_acknowledged(20)
        gc.collect()
        grown = psutil.Process().memory_info().rss - memory
        assert grown < MOST_MEMORY, f"{grown >> 20} MiB more after {MINUTES:g} minutes"


async def _one(fault: Fault, c: Cluster, work: Workload) -> None:
    await work.wait_acknowledged(1 + fault.updates)
    await happen(fault, c)
