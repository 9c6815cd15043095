"""Seeds by name: the same name gives the same numbers in every process, on one core or a thousand."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def seed_of(*names: object) -> int:
    """A seed that is a digest of the names, e.g. `seed_of(root, "table-5.1", "rows", 10_000)`.

    Never `hash()`, which is salted per process.
    """
    text = "/".join(map(str, names))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def generator(*names: object) -> np.random.Generator:
    """A generator of its own for the thing named."""
    return np.random.Generator(np.random.PCG64(seed_of(*names)))
