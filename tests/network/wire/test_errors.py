"""Errors: they pickle, they travel, and what a stranger claims to be one becomes one all the same."""

from __future__ import annotations

import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hullcast
from hullcast.network.wire import bodies, errors
from hullcast.network.wire.errors import HullcastError, from_wire, to_wire
from tests.support.wire import scalars

EXAMPLES: dict[str, object] = {"str": "a word", "int": 7, "float": 1.5, "tuple[str, ...]": ("a", "b"), "object": "x"}
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HullcastError)]


def example(kind: type[HullcastError]) -> HullcastError:
    """An error of that class with all its fields."""
    if not inspect.isfunction(kind.__init__):
        return kind("what happened")
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return kind(*(EXAMPLES[parameter.annotation] for parameter in parameters))


every_error = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


@every_error
def test_every_error_pickles(kind: type[HullcastError]) -> None:
    error = example(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.args, str(copy), vars(copy)) == (error.args, str(error), vars(error))


@every_error
def test_every_error_travels(kind: type[HullcastError]) -> None:
    error = example(kind)
    received = bodies.decode(bodies.encode(bodies.Failed(*to_wire(error))))
    assert isinstance(received, bodies.Failed)
    copy = from_wire(received.code, received.arguments)
    assert type(copy) is kind
    assert (copy.args, str(copy), vars(copy)) == (error.args, str(error), vars(error))


@every_error
def test_every_error_is_a_public_name_and_in_the_drawing(kind: type[HullcastError]) -> None:
    assert getattr(hullcast, kind.__name__) is kind
    assert kind.__name__ in hullcast.__all__
    assert kind.__name__ in (errors.__doc__ or "")


@given(st.sampled_from(CLASSES).map(lambda kind: kind.__name__) | st.text(), st.lists(scalars).map(tuple))
def test_whatever_is_claimed_to_be_an_error_becomes_one(code: str, arguments: tuple[object, ...]) -> None:
    error = from_wire(code, arguments)
    assert isinstance(error, HullcastError)
    assert isinstance(str(error), str)
    assert to_wire(error)


def test_an_unknown_code_keeps_its_words() -> None:
    error = from_wire("DiskOnFire", ("rack 7", 451))
    assert type(error) is HullcastError
    assert str(error) == "DiskOnFire: rack 7, 451"


def test_wrong_arguments_make_a_plain_error() -> None:
    for arguments in ((), ("t",), ("t", "no number", "c", "r"), ("t", True, "c", "r"), ("t", 1, "c", "r", "more")):
        assert type(from_wire("BadValue", arguments)) is HullcastError


def test_a_class_of_others_travels_as_its_nearest_ancestor() -> None:
    class OddValue(errors.BadValue):
        """Not of errors.py."""

    assert to_wire(OddValue("t", 1, "c", "odd")) == ("BadValue", ("t", 1, "c", "odd"))


def test_arguments_that_do_not_travel_become_text_and_long_ones_are_cut() -> None:
    code, arguments = to_wire(errors.BadSetting("limit", object(), "x" * 10_000))
    assert code == "BadSetting"
    assert str(arguments[1]).startswith("<object")
    assert len(str(arguments[2])) < 3000


def test_a_missed_deadline_says_how_the_time_was_spent_and_what_would_help() -> None:
    never, late = errors.DeadlineMissed(0.2, 0.2, 0.0), errors.DeadlineMissed(2.0, 0.5, 1.5)
    assert str(never) == (
        "the query was aborted at its deadline of 200 ms: it waited 200 ms for its turn and for rows to be loaded, and "
        "did not begin. Use a later deadline, a higher priority or a freshness below 1"
    )
    assert "deadline of 2 s: it waited 500 ms for its turn" in str(late)
    assert "and ran for 1.5 s. Use a later deadline or a SELECT that reads less" in str(late)
    assert not isinstance(never, errors.Unavailable)  # it would be sent again
    assert not isinstance(never, TimeoutError)  # callers that wait for a reply would take it for their own


def test_the_branch_says_what_to_do() -> None:
    assert issubclass(errors.BadFrame, errors.PeerError)
    assert issubclass(errors.Overloaded, errors.Unavailable)
    assert isinstance(errors.NotPermitted("ann", "publish", "trades"), PermissionError)
    assert str(errors.NotPermitted("ann", "publish", "trades")).startswith(
        "ann does not have the right `publish` on trades"
    )
    assert "publish to T: no reply after 3 s" in str(errors.TimedOut("publish to T", 2.99992))
    assert [errors.BadFrame("x").code, errors.VersionMismatch(1, 2).code] == ["protocol", "version"]
    assert errors.PeerClosed("slow", "64 MB waiting").code == "slow"
    assert "upgrade this side" in str(errors.VersionMismatch(1, 2))
