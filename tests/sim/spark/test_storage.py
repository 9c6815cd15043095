"""Places: what is written is read, here and where only Spark reaches; what cannot be is refused in a line, and soon."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import Found, Place, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["here", "elsewhere"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder that is not there yet."""
    elsewhere: Place = request.getfixturevalue("elsewhere") if request.param == "elsewhere" else Place(tmp_path / "new")
    return elsewhere


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("out", Place(Path("out"))),
        ("o:1", Place(Path("o:1"))),
        ("file:/a/b", Place(Path("/a/b"))),
        ("file:///a/b", Place(Path("/a/b"))),
        ("file://localhost/a", Place(Path("/a"))),
        ("hdfs://host:8020/a/b/", Place(None, "hdfs://host:8020/a/b")),
        ("hdfs:///a", Place(None, "hdfs:///a")),
    ],
)
def test_names_are_paths_or_urls(name: str, place: Place) -> None:
    assert place_of(name) == place
    assert place_of(place) is place


@pytest.mark.parametrize("name", ["s3a://", "s3a:///", "hdfs://"])
def test_a_storage_without_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="names a storage, but no folder in it"):
        place_of(name)


def test_what_is_written_is_read_and_nothing_else_is_there(place: Place) -> None:
    assert not place.exists()
    assert place.entries() == []
    content = os.urandom(100_000)
    (place / "a b[1]" / "file").write_bytes(content)
    (place / "text").write_text("äöü")
    (place / "text").write_text("again")
    assert (place / "a b[1]" / "file").read_bytes() == content
    assert (place / "text").read_text() == "again"
    assert place.entries() == [Found("a b[1]", True, 0), Found("text", False, 5)]
    assert place.files() == {"a b[1]/file": 100_000, "text": 5}
    assert (place / "text").size_bytes() == 5
    assert place.is_folder()
    assert not (place / "text").is_folder()
    assert (place / "a b[1]" / "file").parent == place / "a b[1]"
    (place / "a b[1]").remove()
    (place / "a b[1]").remove()
    assert place.files() == {"text": 5}
    place.remove()
    assert not place.exists()


def test_a_file_that_is_there_is_not_written_as_new(place: Place) -> None:
    assert (place / "lock").write_new(b"first")
    assert not (place / "lock").write_new(b"second")
    assert (place / "lock").read_bytes() == b"first"


def test_what_is_not_there_cannot_be_read(place: Place) -> None:
    for read in ((place / "gone").read_bytes, (place / "gone").size_bytes):
        with pytest.raises(FileNotFoundError):
            read()


def test_a_file_is_copied_to_a_place(place: Place, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"x" * 10)
    for _ in range(2):
        (place / "p").copy_from(tmp_path / "picture")
    assert place.files() == {"p": 10}


def test_spark_reads_what_it_wrote_whatever_the_name(spark: SparkSession, place: Place) -> None:
    table = place / "a{b}[1]*"
    spark.range(5).coalesce(1).write.parquet(table.to_write)
    assert spark.read.parquet(table.to_read).count() == 5
    assert "_SUCCESS" in table.files()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("foo://host/x", "foo://host/x: Spark here cannot reach foo://"),
        ("hdfs://no.such.host.invalid:8020/x", "no answer from no.such.host.invalid:8020 (UnknownHostException"),
        ("webhdfs://no.such.host.invalid:1/x", "no answer from no.such.host.invalid:1 (UnknownHostException"),
        ("hdfs://127.0.0.1:1/x", "no answer from 127.0.0.1:1 (ConnectException: Connection refused"),
        ("webhdfs://127.0.0.1:1/x", "no answer from 127.0.0.1:1 (ConnectException"),
        ("viewfs://unknown/x", "Empty Mount table"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_refused_in_a_line_and_soon(
    spark: SparkSession, url: str, message: str
) -> None:
    begun = monotonic()
    with pytest.raises(UsageError) as refused:
        place_of(url).check()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert monotonic() - begun < 15, "Hadoop's own patience is a quarter of an hour"


def test_a_place_elsewhere_without_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(UsageError, match="no Spark session is open"):
        place_of("hdfs://host/x").exists()
