"""The maintenance of views: made from checkpoint and log, then changes are propagated in batches.

    no file, or not usable      copies from the newest checkpoint and the log behind it, then the result from the copies
    a file                      for each table that is asked for: the log behind its own position, coalesced by key, as
                                a delta through the joins; or only into its copy, and then the result from the copies
    the log is cut behind it    all rows are removed, and come again from the newest checkpoint and the log behind it

Each of these is one transaction, with the tables' positions in it: whoever is killed, nothing is lost or done twice.
"""

from __future__ import annotations

import time
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Propagation, Spent
from hullcast.broker.warehouse.files.table_file import FileState, file_of
from hullcast.broker.warehouse.files.table_loader import (
    Bases,
    FileLoader,
    Loader,
    PartialRowsError,
    is_partial,
    last_words_of,
    stored_cells,
)
from hullcast.broker.warehouse.files.view_file import DeltaTooDearError, LearnedCosts, ViewFile, ViewLife, overall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from hullcast.broker.log.history import Life
    from hullcast.broker.log.source import Base, ChangeBlock

    Changes = tuple[Sequence[Sequence[Any]], list[Any]]

#: Keys that are propagated at once: at first, and at most. How much a key joins with shows when it is done.
_FIRST_KEYS, _MOST_KEYS = 1 << 9, 1 << 15
#: Seconds that to propagate some keys should take: more are taken at once if it was much less, fewer if it was more.
_PIECE_S = 0.2
#: Deltas may take so many times as long as computing the result again, and so long in any case. When they are given up,
#: the whole has taken little more than one plus that many times what it would have taken to do the better at once.
PATIENCE, LEAST_PATIENCE_S = 2.0, 0.05
#: How often a propagation is measured, and for how long.
_MEASURED, _MEASURED_S = 5, 0.25


class ViewLoader(FileLoader[ViewLife, ViewFile, Propagation]):
    KIND, FILE = "view", ViewFile

    def learned(self, view: ViewLife) -> LearnedCosts:
        """What the file of a view keeps of costs; nothing if there is no file."""
        with self._opened(view) as file:
            return LearnedCosts() if file is None else file.learned()

    def keep_deltas(self, view: ViewLife, deltas: str) -> None:
        """Keep what is known of the costs of deltas. The view has a file."""
        with self._opened(view) as file:
            assert file is not None
            file.keep_deltas(deltas)

    def build(self, view: ViewLife, through: int) -> Propagation:
        """Bring all tables of a view to `through`; a file that is not there is made."""
        return self.propagate(view, {fold(table.name): through for table in view.definition.tables})

    def propagate(
        self,
        view: ViewLife,
        through: Mapping[str, int],
        *,
        since: Mapping[str, int] | None = None,
        recompute: bool = False,
        deltas: str | None = None,
    ) -> Propagation:
        """Propagate the changes of these tables (by name) up to a sequence number each, which is on disk in the log;
        one that is further stays as it is. Without a usable file, all tables are brought to the largest number.

        `since`: by folded name, up to where a table is known to have no changes that are not propagated. The log is
        read behind that, and need not reach back any further.

        By deltas, unless these take longer than `PATIENCE` times what it takes to compute the result again; `recompute`
        does that at once, where deltas are known to be dear. `deltas` is what is known of their costs, to be kept.

        LoadFailed if the disk refuses; HistoryGone if neither the log nor a checkpoint has what is needed. What was
        written is moved into the file by `tidy`.
        """
        wanted = {fold(table): seq for table, seq in through.items()}
        most = max(wanted.values())
        done = self._loading(
            view,
            view.bases[0],
            most,
            lambda file: self._go_on(file, wanted, since or {}, recompute, deltas),
        )
        return done._replace(computing=self.learned(view).computing)

    def tidy(self, view: ViewLife) -> None:
        """Move what was written into the file, if it is much. That may take some time: the disk is waited for."""
        with self._opened(view) as file:
            if file is not None:
                file.tidy()

    def measure(self, view: ViewLife, table: str, changes: int) -> float:
        """Seconds to propagate so many changes of a table, without log and commit: rows of a sample are taken out, and
        then come back while as many others go, which is the work of as many updates. All of it is rolled back.

        If a table has fewer rows, what they take counts for more, in proportion. The view has a file.
        """
        with self._opened(view) as file:
            if file is None:
                raise FileNotFoundError(f"{view.table.name} has no file yet")
            with file.loading(self._bounds):
                return sum(_exchanging(file, source, changes) for source in view.definition.sources_of(table))

    # -- a load --------------------------------------------------------------------------------------------

    def _go_on(
        self, file: ViewFile, through: dict[str, int], since: Mapping[str, int], recompute: bool, deltas: str | None
    ) -> Propagation:
        if recompute:
            return self._load(file, through, since, None, deltas)
        computing = file.learned().computing
        budget = _Budget(inf if computing is None else max(LEAST_PATIENCE_S, PATIENCE * computing.fixed_s))
        try:
            return self._load(file, through, since, budget, deltas)
        except DeltaTooDearError:
            done = self._load(file, through, since, None, deltas)
            return done._replace(given_up=(budget.table, budget.spent_s))

    def _load(
        self,
        file: ViewFile,
        through: dict[str, int],
        since: Mapping[str, int],
        budget: _Budget | None,
        deltas: str | None,
    ) -> Propagation:
        """The changes of tables into a file, by deltas within a budget; without one into the copies, and the result is
        computed from these."""
        with file.loading(self._bounds):
            states, spent, recomputed_s = file.states(), dict[str, Spent](), None
            for table, seq in through.items():
                began, state = time.perf_counter(), states[table]
                life, updates, last = file.view.base(table), 0, state.last
                sources = file.view.definition.sources_of(table)
                if state.current < seq:
                    pace = None if budget is None else _Pace()
                    after = min(seq, max(state.current, since.get(table, 0)))
                    for block in self._source.changes(life, after, seq, state.position):
                        self._bounds.check()
                        for source in sources:
                            for columns, keys_gone in _changes(file, source, block, pace):
                                if budget is None:
                                    file.fill(source, columns, keys_gone)
                                else:
                                    budget.propagate(file, table, source, columns, keys_gone)
                        updates, last = updates + block.updates, block.last
                    states[table] = FileState(seq, last, self._source.position)
                    file.note(life, states[table])
                spent[table] = Spent(updates, time.perf_counter() - began)
            if budget is None:
                recomputed_s = _compute(file.compute_again, file, spent)
            if deltas is not None:
                file.keep_deltas(deltas)
            ended = time.perf_counter()
            file.end(overall(states))
        commit_s = (time.perf_counter() - ended) / max(1, len(spent))
        return Propagation({table: Spent(n, took_s + commit_s) for table, (n, took_s) in spent.items()}, recomputed_s)

    def _bases(self, view: ViewLife, through: int, *, partial: bool) -> dict[Life, Base | Path | None]:
        """A checkpoint, or nothing; a table's own file, brought that far, if the log has rows that lack columns."""
        if not partial:
            return {life: next(self._source.bases(life, through), None) for life in view.bases}
        loader = Loader(self._directory, self._bounds)
        try:
            for life in view.bases:
                loader.load(life, through)
        finally:
            loader.close()
        return {life: file_of(self._directory, life) for life in view.bases}

    def _fill(
        self, file: ViewFile, view: ViewLife, through: int, bases: Bases, index: Callable[[], None]
    ) -> tuple[Propagation, FileState]:
        filled = {}
        for life in file.view.bases:
            began = time.perf_counter()
            sources, updates = file.view.definition.sources_of(life.table.name), 0
            base, name = bases.of[life], bases.names.get(life, "")
            if base is not None and not isinstance(base, tuple):
                for source in sources:
                    state = file.copy_loaded(source, name, self._identity)
            else:
                last = life.created if base is None else base.seq
                if base is not None and base.stored is not None:
                    updates = sum(file.copy(source, name, base.stored) for source in sources)
                for block in self._source.changes(life, last, through, None):
                    self._bounds.check()
                    for source in sources:
                        for columns, keys_gone in _changes(file, source, block, None):
                            file.fill(source, columns, keys_gone)
                    updates, last = updates + block.updates, block.last
                state = FileState(through, last, self._source.position)
            file.note(life, state)
            filled[fold(life.table.name)] = Spent(updates, time.perf_counter() - began)
        index()
        _compute(file.compute, file, filled)
        spent = {table: Spent(0, took_s) for table, (_, took_s) in filled.items()}
        return Propagation(spent, built=True), overall(file.states())


def _compute(compute: Callable[[], None], file: ViewFile, filled: Mapping[str, Spent]) -> float:
    """Compute the result when the copies are filled, and learn what it takes; gives the seconds."""
    began = time.perf_counter()
    compute()
    took_s = time.perf_counter() - began
    rows, seconds = zip(*filled.values(), strict=True)
    file.learn_computing(sum(rows), sum(seconds), took_s)
    return took_s


def _exchanging(file: ViewFile, source: int, changes: int) -> float:
    """Seconds to exchange some rows of a source for others, the middle one of some attempts."""
    rows = file.sample(source, 2 * changes)
    there, away = rows[len(rows) // 2 :], rows[: len(rows) // 2]
    file.exchange(source, (), away)
    took: list[float] = []
    while len(took) < _MEASURED and sum(took) < _MEASURED_S:
        began = time.perf_counter()
        file.exchange(source, away, there)
        took.append(time.perf_counter() - began)
        there, away = away, there
    return median(took) * max(1.0, changes / max(1, len(rows) // 2))


class _Budget:
    """Seconds that deltas of a load may take."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self.spent_s = 0.0
        self.table = ""  # the one that they are of now

    def propagate(
        self, file: ViewFile, table: str, source: int, columns: Sequence[Sequence[Any]], gone: list[Any]
    ) -> None:
        """Propagate some changes; DeltaTooDearError if that is too much."""
        self.table, began = table, time.perf_counter()
        try:
            if self._left_s <= 0:
                raise DeltaTooDearError
            file.propagate(source, columns, gone, self._left_s)
        finally:
            took_s = time.perf_counter() - began
            self._left_s, self.spent_s = self._left_s - took_s, self.spent_s + took_s


class _Pace:
    """How many keys are propagated at once: so many that it takes a while, and no more. A key may join with nothing, or
    with every row of another table."""

    def __init__(self) -> None:
        self.keys = _FIRST_KEYS

    def took(self, seconds: float) -> None:
        """What the keys of before have taken."""
        if seconds > 2 * _PIECE_S:
            self.keys = max(1, self.keys // 4)
        elif seconds < _PIECE_S / 4:
            self.keys = min(_MOST_KEYS, 4 * self.keys)


def _changes(file: ViewFile, source: int, block: ChangeBlock, pace: _Pace | None) -> Iterator[Changes]:
    """The last words of a block on the keys of a table, some at a time: columns that the source reads, and keys that
    are gone. Without a pace as many as possible."""
    if is_partial(block):
        raise PartialRowsError
    table, reads = file.view.definition.sources[source].table, file.reads(source)
    words = last_words_of(table, block)
    start, keys = 0, max(words.rows.shape[1], len(words.gone))
    while start < keys:
        began = time.perf_counter()
        at = slice(start, start + (_MOST_KEYS if pace is None else pace.keys))
        some = words.rows[:, at]
        yield [stored_cells(table, column, some[column], block.interner) for column in reads], words.gone[at]
        start = at.stop
        if pace is not None:
            pace.took(time.perf_counter() - began)
