"""Giving a world to Spark's workers: once for each machine, however many Python processes it runs.

A broadcast ends up as a file on each machine. Spark lets every Python process read its own copy of it; here they all
map the file, so that the arrays of a world (140 MB with a million subscriptions) are in memory once.

    broadcast file    pickle's head | padding, array, padding, array .. | the rest, and where arrays begin | MARK
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from hullcast.sim.traffic.world import World

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

#: Arrays begin at multiples of it, as kernels take them.
ALIGNED = 64
#: Ends what we pack; its last place in a file tells where that ends, for pickle writes a few bytes more.
MARK = b"hullcast world"
_SIZE_BYTES = 8
#: Pickle writes a value of so many bytes apart from others, after so many bytes of its own.
LONG = 1 << 17
HEAD = pickle.dumps(b"\1" * LONG, pickle.HIGHEST_PROTOCOL).index(b"\1" * LONG)


@dataclass(frozen=True, slots=True)
class SentWorld:
    """A world that Spark's workers have or can fetch."""

    names: tuple[str, ...]  # of its placements
    packed: Broadcast[bytes]

    def world(self) -> World:
        """The world itself, in a worker."""
        path = getattr(self.packed, "_path", None)
        # Spark that encrypts what it writes has no file that could be mapped.
        return unpacked(self.packed.value) if path is None else _mapped(path)


@contextmanager
def sent(spark: SparkSession, world: World) -> Iterator[SentWorld]:
    """Give a world to the workers for as long as the block lasts: whoever replays many needs the memory back."""
    broadcast = spark.sparkContext.broadcast(packed(world))
    try:
        yield SentWorld(world.names, broadcast)
    finally:
        broadcast.destroy()


def packed(world: World) -> bytes:
    """A world as one value, its arrays aligned in the file that pickle makes of it."""
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(world, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    content, places = bytearray(LONG), []
    for buffer in buffers:
        raw = buffer.raw()
        content += bytes(-(HEAD + len(content)) % ALIGNED)
        places.append((len(content), raw.nbytes))
        content += raw
    end = pickle.dumps((rest, places))
    content += end
    for size in (len(end), len(content)):
        content += size.to_bytes(_SIZE_BYTES, "little")
    return bytes(content + MARK)


def unpacked(content: bytes | bytearray | mmap.mmap) -> World:
    """The world again. Its arrays lie in `content` if that can be written to and has them aligned, else in copies."""
    mark = content.rfind(MARK)
    assert mark >= 0, "not a packed world"
    last, size = (int.from_bytes(content[mark - n : mark - n + _SIZE_BYTES], "little") for n in (8, 16))
    begin = mark - 2 * _SIZE_BYTES - last
    assert begin >= 0, "half of a packed world"
    rest, places = pickle.loads(content[begin + last - size : begin + last])
    view = memoryview(content)
    inside = not view.readonly and begin % ALIGNED == HEAD % ALIGNED
    arrays = [view[begin + first : begin + first + count] for first, count in places]
    world = pickle.loads(rest, buffers=arrays if inside else [bytearray(array) for array in arrays])
    assert isinstance(world, World)
    return world


@lru_cache(maxsize=1)
def _mapped(path: str) -> World:
    """The world in a broadcast's file. What is written to its arrays stays in this process."""
    with open(path, "rb") as file:
        return unpacked(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
