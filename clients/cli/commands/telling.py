"""Events of a subscription as lines: for people, and as JSON for programs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hullcast.clients.cli.commands.connection import as_json, distinct, in_order, shown
from hullcast.network.answers.events import Resync, StreamTuple
from hullcast.network.answers.result import ResultRows
from hullcast.network.wire.durations import time_shown

if TYPE_CHECKING:
    from rich.console import Console

    from hullcast.network.answers.events import Event

#: Rows of a whole answer that are shown to people.
SHOWN_ROWS = 20
_STYLES = {"entered": "green", "left": "red", "changed": "yellow", "resync": "magenta", "connection": "dim"}


class JsonTeller:
    """One JSON object a line; `hullcast subscribe --help` lists the fields."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.events = 0
        self.resyncs = 0
        self.of_stream = False
        self._columns = columns
        self._names = distinct(columns)

    def answer(self, seq: int, answer: Any) -> str:
        """The first line."""
        return self._line("answer", seq=seq, columns=list(self._columns), **self._whole(answer))

    def event(self, event: Event) -> str:
        """What happened."""
        self.events += 1
        conflated = {"conflated": event.conflated} if event.conflated else {}
        if isinstance(event, Resync):
            self.resyncs += 1
            told = {**self._whole(event.answer), "lost": event.lost, "reason": event.reason}
            return self._line("resync", seq=event.seq, **told, **conflated)
        if isinstance(event, StreamTuple):
            return self._line("tuple", seq=event.seq, row=self._item(event.row), **conflated)
        if event.entered or event.left or event.changed:
            return self._line(
                "change",
                seq=event.seq,
                entered=list(map(self._item, event.entered)),
                left=list(map(self._item, event.left)),
                changed=[[self._item(before), self._item(after)] for before, after in event.changed],
                **conflated,
            )
        return self._line("change", seq=event.seq, **self._whole(event.answer), **conflated)

    def connection(self, *, connected: bool) -> str:
        """It went, or it is there again."""
        return self._line("connection", connected=connected)

    def _line(self, event: str, **fields: object) -> str:
        return as_json({"event": event, **fields}) + "\n"

    def _whole(self, answer: Any) -> dict[str, Any]:
        """A whole answer; of a result also what it is worth."""
        if not isinstance(answer, ResultRows):
            return {"answer": self._answer(answer)}
        told: dict[str, Any] = {"at": answer.at, "fired": answer.fired}
        if answer.error is not None:
            return {"answer": None, "error": str(answer.error), **told}
        if answer.worth is not None:
            told |= {"as_of": answer.worth.seq, "took_s": answer.worth.waited_s + answer.worth.ran_s}
        names = distinct(answer.columns)
        return {"answer": [dict(zip(names, row, strict=True)) for row in answer], **told}

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, list):
            return list(map(self._item, answer))
        return in_order(answer) if isinstance(answer, set | frozenset) else answer

    def _item(self, item: Any) -> Any:
        return dict(zip(self._names, item, strict=True)) if isinstance(item, tuple) else item


class TextTeller:
    """One line an event, with the time at which it came; in colour on a terminal."""

    def __init__(self, columns: tuple[str, ...], console: Console) -> None:
        self.events = 0
        self.resyncs = 0
        self.of_stream = False  # there are tuples, and no answer
        self._columns = columns
        self._console = console

    def answer(self, seq: int, answer: Any) -> str:
        """The first line; of rows, as many as one can look at."""
        return self._line(Text.assemble(_seq(seq), _whole(self._columns, answer)))

    def event(self, event: Event) -> str:
        """What happened."""
        self.events += 1
        line = self._told(event)
        if event.conflated:
            line.append(f"  (stands for {event.conflated:,} earlier ones, too)", _STYLES["resync"])
        return self._line(line)

    def _told(self, event: Event) -> Text:
        if isinstance(event, Resync):
            self.resyncs += 1
            lost = f", {event.lost} changes lost here" if event.lost else ""
            why = {"gap": "changes were missed while disconnected", "overflow": "read too slowly"}
            if self.of_stream:
                why["gap"] = "not retained, or a join failed"
            text = (f"resync ({why.get(event.reason, event.reason)}{lost})  ", _STYLES["resync"])
            whole = Text("tuples up to here are missing") if self.of_stream else _whole(self._columns, event.answer)
            return Text.assemble(_seq(event.seq), text, whole)
        if isinstance(event, StreamTuple):
            return Text.assemble(_seq(event.seq), _named(self._columns, event.row))
        parts = [
            *((_STYLES["entered"], f"entered {_item(item)}") for item in event.entered),
            *((_STYLES["left"], f"left {_item(item)}") for item in event.left),
            *((_STYLES["changed"], f"changed {_difference(self._columns, *pair)}") for pair in event.changed),
        ]
        if not parts:
            return Text.assemble(_seq(event.seq), _whole(self._columns, event.answer))
        line = Text.assemble(_seq(event.seq))
        for number, (style, words) in enumerate(parts):
            line.append("; " if number else "").append(words, style)
        return line

    def connection(self, *, connected: bool) -> str:
        """It went, or it is there again."""
        text = "connected again" if connected else "connection lost; reconnecting"
        return self._line(Text(text, _STYLES["connection"]))

    def _line(self, text: Text) -> str:
        now = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
        line = Text.assemble((now, "dim"), "  ", text)
        if not self._console.is_terminal:
            return line.plain + "\n"
        with self._console.capture() as captured:
            self._console.print(line, soft_wrap=True)
        return captured.get()


def _seq(seq: int) -> tuple[str, str]:
    return f"seq {seq}  ", "cyan"


def _whole(columns: tuple[str, ...], answer: Any) -> Text:
    """A whole answer: one value, a set, or the number of rows and the first of them below."""
    if not isinstance(answer, list):
        return Text(_value(answer), "bold")
    if isinstance(answer, ResultRows):
        if answer.error is not None:
            return Text(f"not run: {answer.error}", _STYLES["left"])
        columns = answer.columns
    text = Text.assemble((f"{len(answer):,} row{'' if len(answer) == 1 else 's'}", "bold"))
    if isinstance(answer, ResultRows) and answer.worth is not None:
        as_of, took_s = answer.worth.seq, answer.worth.waited_s + answer.worth.ran_s
        text.append(f" at update {as_of:,}, {time_shown(took_s)}" if as_of is not None else "", "dim")
    for row in answer[:SHOWN_ROWS]:
        text.append(f"\n  {_named(columns, row)}")
    if len(answer) > SHOWN_ROWS:
        text.append(f"\n  .. and {len(answer) - SHOWN_ROWS:,} more")
    return text


def _value(answer: Any) -> str:
    if isinstance(answer, set | frozenset):
        values = in_order(answer)
        more = f", .. and {len(values) - SHOWN_ROWS:,} more" if len(values) > SHOWN_ROWS else ""
        return "{" + ", ".join(map(shown, values[:SHOWN_ROWS])) + more + "}"
    return shown(answer)


def _item(item: Any) -> str:
    return "(" + ", ".join(map(shown, item)) + ")" if isinstance(item, tuple) else shown(item)


def _named(columns: tuple[str, ...], row: Any) -> str:
    return "  ".join(f"{name}={shown(value)}" for name, value in zip(columns, row, strict=True))


def _difference(columns: tuple[str, ...], before: Any, after: Any) -> str:
    """A row as it was, and what of it is different now."""
    pairs = zip(columns, before, after, strict=True)
    return f"{_item(before)}: " + ", ".join(f"{name} is now {shown(new)}" for name, old, new in pairs if old != new)
