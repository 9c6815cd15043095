"""What the server, the warehouse process and its workers tell each other; `broker/processes/ends.py` is how it travels.

    server <==(a socket pair)==> warehouse process <==(a socket pair each)==> workers

All times are of the monotonic clock, which the processes of a machine share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.log.history import Life
from hullcast.broker.queries.reading import Plan
from hullcast.broker.warehouse.files.view_file import ViewLife

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.broker.tables.schema import Table

#: What workers remember, so that it goes to each of them once: see `SharedOut`.
SHARED = (Life, ViewLife, Plan)


# -- from the server to the process ------------------------------------------------------------------------


class Begin(NamedTuple):
    """The first message: whose files, how many workers, what a query may take, and who decides."""

    directory: str
    places: int
    limits: QueryLimits
    policy: str
    disk: DiskLimits


class Known(NamedTuple):
    """A table or view (folded name) as it is now, and about how many rows it has; without a life: it is gone."""

    name: str
    life: Life | ViewLife | None
    rows: int = 0


class Released(NamedTuple):
    """All up to `through` was acknowledged at `at`; by folded name, the first and the last update of tables that
    changed since the message before, and how many."""

    through: int
    at: float
    tables: dict[str, tuple[int, int, int]]


class Ask(NamedTuple):
    """A query. `tables` (folded names) are those that it may read at most: if it reads others, the answer says which.
    If the rows are many, `ticket` is to fetch them with. `only_tables`: nothing is asked but which tables the text
    reads."""

    number: int
    owner: str
    sql: str
    parameters: tuple[Any, ...]
    tables: tuple[str, ...]
    arrived: float
    ticket: bytes
    freshness: float = 1.0
    deadline_s: float | None = None
    priority: int = 0
    consistent: bool = False
    only_tables: bool = False


class MakeView(NamedTuple):
    """Make the file of a view that is to be created, and measure what keeping it ready takes."""

    number: int
    owner: str
    life: ViewLife


class Withdraw(NamedTuple):
    """Nobody waits for that answer any more."""

    number: int


class Switch(NamedTuple):
    """Another policy, by name."""

    policy: str


# -- from the process to the server ------------------------------------------------------------------------


class ViewMade(NamedTuple):
    """The file of a view is made; the shortest response time that can be promised."""

    number: int
    shortest_s: float


class AnswerRows(NamedTuple):
    """The tables (folded names) that a text reads, and the first portion of the answer, encoded; None: it was not run.
    If there are more portions, they are in the file `spool`."""

    number: int
    tables: tuple[str, ...]
    body: bytes | None = None
    spool: str | None = None


class SpooledPart(NamedTuple):
    """One more portion is in the file, at this place."""

    number: int
    offset: int
    size: int


class AnswerEnded(NamedTuple):
    """That was the last portion; what the rows are worth."""

    number: int
    worth: dict[str, Any]


class QueryRefused(NamedTuple):
    """A query failed: see `errors.to_wire`."""

    number: int
    code: str
    arguments: tuple[Any, ...]


class Report(NamedTuple):
    """How things are, for people."""

    counters: dict[str, Any]


# -- from the process to a worker --------------------------------------------------------------------------


class FileOf(NamedTuple):
    """The file of a table or view. It may be read if it is current up to a number from `least` to `most`."""

    life: Life | ViewLife
    path: str
    least: int
    most: float


class LoadTable(NamedTuple):
    """Bring a table's file to a sequence number."""

    life: Life
    through: int


class LoadView(NamedTuple):
    """Propagate changes of tables (folded names) into a view, up to these sequence numbers; `recompute`: into its
    copies, from which its result is computed then. `since`: up to where each table has no changes that are pending.
    `deltas`: what is known of the costs of deltas, to be kept."""

    life: ViewLife
    through: dict[str, int]
    since: dict[str, int]
    recompute: bool = False
    deltas: str | None = None


class BuildView(NamedTuple):
    """Make the file of a view as of a sequence number, and measure what propagating takes."""

    life: ViewLife
    through: int


class Select(NamedTuple):
    """Run a SELECT over these files. `plan`: the text as it was read; if it was not, it is read first (`known` are the
    tables that it may name), and run if it reads no other files. `only_read`: it is not run in any case."""

    sql: str
    plan: Plan | None
    known: Mapping[str, Table]
    parameters: tuple[Any, ...]
    files: tuple[FileOf, ...]
    ticket: bytes
    spool: str
    limits: QueryLimits
    only_read: bool = False


class DiskLimits(NamedTuple):
    """What files may take: one of a table or view; and what all of them leave to the log."""

    file_bytes: int
    reserve_bytes: int = 0


class QueryLimits(NamedTuple):
    """What one query may take."""

    time_s: float
    memory_bytes: int
    rows: int
    spool_bytes: int


# -- from a worker to the process --------------------------------------------------------------------------


class ReadPlan(NamedTuple):
    """The text of a query was read."""

    plan: Plan


class Pinned(NamedTuple):
    """The query sees its tables as they are now, up to these numbers, whatever is loaded from now on."""

    loaded: tuple[int, ...]


class FileMoved(NamedTuple):
    """A file was loaded further than it may be for this question, or is `lost`; nothing was read."""

    lost: bool = False


class FirstRows(NamedTuple):
    """The first portion, encoded; whether there are more."""

    body: bytes
    more: bool


class NextRows(NamedTuple):
    """One more portion is in the spool file."""

    offset: int
    size: int


class Finished(NamedTuple):
    """The task is done. `spent`: the worker has taken memory that it may not get rid of, and should be replaced."""

    spent: bool = False
    result: Any = None


class Failure(NamedTuple):
    """The task failed."""

    code: str
    arguments: tuple[Any, ...]
    spent: bool = False
