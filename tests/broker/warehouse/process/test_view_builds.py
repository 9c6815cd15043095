"""Views on their way: whatever becomes of them, a file is there only for one that is known, made or wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from hullcast.broker.warehouse.deciding.board import Board
from hullcast.broker.warehouse.files.table_file import FOLDER, file_of
from hullcast.broker.warehouse.files.view_file import ViewLife
from hullcast.broker.warehouse.messages import MakeView
from hullcast.broker.warehouse.process.loads import ViewBuilds
from hullcast.broker.warehouse.process.workers import Hand
from tests.broker.warehouse.files.test_table_file import life_of
from tests.support.base_tables import view_life

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.broker.warehouse.files.table_file import KeptLife

T = life_of("T", "K INTEGER PRIMARY KEY, X REAL")


def view(name: str, column: str = "K") -> ViewLife:
    return view_life(f"CREATE VIEW {name} AS SELECT {column} FROM T WITH (response_time = '1s')", T)


class Building:
    """Views that are made in a folder, by hand."""

    def __init__(self, path: Path) -> None:
        self.known: list[KeptLife] = []
        self.path, self.builds = path, ViewBuilds(path, Board(2), lambda: self.known, lambda message: None)
        (path / FOLDER).mkdir()

    def begin(self, number: int, life: ViewLife) -> MakeView:
        self.builds.put(MakeView(number, "me", life))
        making = self.builds.next(0.0)
        assert making is not None
        return making

    def end(self, making: MakeView, *, done: bool = False, killed: bool = False, process: int = 77) -> None:
        self.builds.ended(making, Hand(process, cast("Any", None)), 1.0, done=done, killed=killed)

    def write(self, life: ViewLife) -> None:
        file_of(self.path, life).touch()

    def is_there(self, life: ViewLife) -> bool:
        return file_of(self.path, life).exists()


@pytest.fixture
def building(tmp_path: Path) -> Building:
    return Building(tmp_path)


def test_what_a_killed_worker_has_made_goes_when_it_is_gone(building: Building) -> None:
    v = view("V")
    building.end(building.begin(1, v), killed=True)
    building.write(v)  # it is not dead yet
    building.builds.gone(78)
    assert building.is_there(v)
    building.builds.gone(77)
    assert not building.is_there(v)


@pytest.mark.parametrize("wanted", ["waits", "is being made", "is made", "is known"])
def test_what_a_killed_worker_has_made_stays_if_it_is_wanted_again(building: Building, wanted: str) -> None:
    v = view("V")
    building.end(building.begin(1, v), killed=True)
    building.write(v)
    if wanted == "waits":
        building.builds.put(MakeView(2, "me", v))
    elif wanted != "is known":
        again = building.begin(2, v)
        if wanted == "is made":
            building.end(again, done=True)
    else:
        building.known = [v]
    building.builds.gone(77)
    assert building.is_there(v)


def test_a_view_that_failed_or_is_withdrawn_leaves_no_file(building: Building) -> None:
    v, w, known = view("V"), view("W"), view("KNOWN")
    for life in (v, w, known):
        building.write(life)
    building.known = [known]
    building.end(building.begin(1, v))
    building.end(building.begin(2, w), done=True)
    assert (building.is_there(v), building.is_there(w)) == (False, True)
    building.builds.withdraw(2)
    assert not building.is_there(w)
    building.end(building.begin(3, known), done=True)
    building.builds.known(known)
    building.builds.withdraw(3)
    assert building.is_there(known)


def test_a_view_that_is_withdrawn_while_it_waits_is_not_made(building: Building) -> None:
    building.builds.put(MakeView(1, "me", view("V")))
    building.builds.put(MakeView(2, "me", view("W")))
    building.builds.withdraw(1)
    found = building.builds.next(0.0)
    assert found is not None
    assert found.number == 2
    assert building.builds.next(0.0) is None


def test_another_view_of_the_same_name_takes_the_place_of_one_that_was_made(building: Building) -> None:
    first, second = view("V"), view("v", "X")
    building.end(building.begin(1, first), done=True)
    building.write(first)
    building.builds.put(MakeView(2, "me", second))
    assert not building.is_there(first)
