"""Topologies on disk: GraphML, edge lists and INET's format, also compressed."""

from __future__ import annotations

import bz2
import gzip
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from xml.etree.ElementTree import ParseError

from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.graph import Topology, make_topology
from hullcast.sim.topology.listings import MOST_LINKS, MOST_NODES, Columns, read_listing, write_edges, write_inet

LARGEST = 512 * 2**20  # bytes of text; a longer file, or one that unpacks to more, is refused
GRAPHML, EDGES, INET = (".graphml",), (".txt", ".edges"), (".inet",)


def read_topology(
    path: str | Path,
    *,
    root: int = 0,
    largest: bool = False,
    columns: Columns = (),
    tell: Callable[[str], None] | None = None,
) -> Topology:
    """The topology in a file of any of the formats; its content says which.

    Places that the file does not have are drawn by `root`, latencies that it does not have follow from the places.
    With `largest` only the largest component is kept. `columns` says where in its lines the ends and the latency are,
    for files with others. `tell` hears what was left out, in a sentence.
    """
    path = Path(path)
    name = path.name.partition(".")[0]
    data = _read(path)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        if columns:
            raise UsageError(f"{path} is GraphML, which says itself what is what; leave out --columns")
        read, links = _graphml(data, path, name, root, largest)
        total = read.nodes
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise UsageError(
                f"{path}, line {line}: this is not text; expected GraphML, an edge list or INET's format"
            ) from None
        listing = read_listing(text, str(path), columns)
        for note in listing.notes:
            if tell is not None:
                tell(note)
        links, total = len(listing.a), listing.nodes
        read = make_topology(
            name,
            total,
            listing.a,
            listing.b,
            places=listing.places,
            latency=listing.latency,
            seed=root,
            largest=largest,
        )
    if tell is not None and read.nodes < total:
        tell(f"{total - read.nodes:,} nodes outside the largest component are left out")
    if tell is not None and read.links < links:
        tell(f"{links - read.links:,} lines are left out: loops, links given before, or outside the largest component")
    return read


def write_topology(topology: Topology, path: str | Path) -> None:
    """Write a topology in the format that the name asks for: .graphml, .inet, .txt or .edges, and .gz after it."""
    path = Path(path)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix in GRAPHML:
        data = _to_graphml(topology)
    elif suffix in INET:
        data = write_inet(topology).encode()
    elif suffix in EDGES:
        data = write_edges(topology).encode()
    else:
        raise UsageError(f"{path}: a topology is written as .graphml, .inet, .txt or .edges (and .gz), not {suffix!r}")
    if path.name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # without the time: the same topology gives the same bytes
    part = path.with_name(f".{path.name}.{os.getpid()}")  # so that a full disk leaves no half, and what was there
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            begin = file.read(3)
            file.seek(0)
            if begin.startswith(b"\x1f\x8b"):
                with gzip.open(file) as unpacked:
                    data = unpacked.read(LARGEST + 1)
            elif begin == b"BZh":
                with bz2.open(file) as unzipped:
                    data = unzipped.read(LARGEST + 1)
            else:
                data = file.read(LARGEST + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error  # bz2 says no more than that
    if len(data) > LARGEST:
        raise UsageError(f"{path} has more than {LARGEST // 2**20} MB of text; that is too large")
    return data


def _graphml(data: bytes, path: Path, name: str, root: int, largest: bool) -> tuple[Topology, int]:
    """A GraphML file, and the number of links in it."""
    import networkx

    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:  # what they declare may unpack without end
        raise UsageError(f"{path}: GraphML with a DOCTYPE or ENTITY is refused; remove it")
    try:
        graph = networkx.read_graphml(BytesIO(data))
    except ParseError as error:
        raise UsageError(f"{path}, line {error.position[0]}: not well-formed XML: {error}") from None
    except (networkx.NetworkXException, LookupError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is XML, but networkx cannot read it as GraphML: {error}") from error
    if len(graph) > MOST_NODES or graph.number_of_edges() > MOST_LINKS:
        raise UsageError(
            f"{path} has {len(graph):,} nodes and {graph.number_of_edges():,} links; "
            f"the limits are {MOST_NODES:,} and {MOST_LINKS:,}"
        )
    stored = str(graph.graph.get("name", "")) or name
    return Topology.from_networkx(graph, stored, seed=root, largest=largest), graph.number_of_edges()


def _to_graphml(topology: Topology) -> bytes:
    import networkx

    stream = BytesIO()
    networkx.write_graphml(topology.to_networkx(), stream)
    return stream.getvalue()
