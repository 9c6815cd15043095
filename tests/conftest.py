"""How the tests run: the same examples every time, no clock on them, nothing left on disk.

`HULLCAST_HYPOTHESIS=explore pytest ..` draws new examples instead, ten times as many.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

#: Kernels are compiled when first called, inside an example: neither deadlines nor "too slow" can mean anything.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,  # nothing on disk, so that parallel runs share nothing
    deadline=None,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "explore",
    max_examples=1000,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HULLCAST_HYPOTHESIS", "ci"))
