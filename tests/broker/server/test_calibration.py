"""The file with the costs of join plans: written at one moment, read at a start, never in the way."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from hullcast.broker.joins.costs import DEFAULTS, Coefficients
from hullcast.broker.log.verify import verify
from hullcast.broker.server.calibration import NAME, store_coefficients, stored_coefficients, this_machine
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk import testing
from hullcast.network.security.rights import Rights
from hullcast.network.wire.logs import event_of

DOUBLED = Coefficients(tuple(tuple(2 * value for value in values) for values in DEFAULTS.values), this_machine())


def test_what_was_stored_is_read_and_only_its_owner_may_read_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_coefficients(tmp_path, DOUBLED)
    assert stored_coefficients(tmp_path) == DOUBLED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [NAME]
    assert not caplog.records


def test_without_a_file_the_defaults_are_used_quietly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert stored_coefficients(tmp_path) is DEFAULTS
    assert not caplog.records


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 10_000, b" " * 70_000, b'{"version": 9}'])
def test_a_bad_file_is_one_warning_and_the_defaults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert stored_coefficients(tmp_path) is DEFAULTS
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert "run `hullcast calibrate` again or remove the file" in warning.getMessage()


def test_costs_of_another_machine_are_used_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = Coefficients(DOUBLED.values, {"processor": "abacus"})
    store_coefficients(tmp_path, elsewhere)
    assert stored_coefficients(tmp_path) == elsewhere
    assert [event_of(record) for record in caplog.records] == [
        "costs of join plans were measured on another machine; run `hullcast calibrate` again"
    ]


async def test_it_may_be_written_beside_a_server_and_counts_from_the_next_start(tmp_path: Path) -> None:
    settings = ServerSettings(listen="tcp://127.0.0.1:0", data=tmp_path)
    for expected in (DEFAULTS, DOUBLED):
        server = Server(settings, Rights.everything())
        async with testing.serving(server):
            assert server.engine._channels.coefficients == expected
            store_coefficients(tmp_path, DOUBLED)
            assert server.engine._channels.coefficients == expected
    assert not verify(tmp_path).problems
