"""`hullcast calibrate`: it measures every plan, shows what changes, and stores it for the server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hullcast.broker.joins.costs import MODELS, Coefficients
from hullcast.broker.log.verify import verify
from hullcast.broker.server.calibration import NAME, stored_coefficients
from hullcast.clients.cli import main as cli
from hullcast.clients.cli.commands import calibrate
from hullcast.sim.bench.joins import plan_costs
from tests.support.durable import opened

TINY = (plan_costs.JoinLoad(600, 100, 5, 0.0), plan_costs.JoinLoad(900, 200, 10, 0.3))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "QUICK", TINY)
    monkeypatch.setattr(plan_costs, "QUICK_RUN_S", 0.0001)
    monkeypatch.setenv("COLUMNS", "120")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main(["calibrate", "--quick", *words])
    return code, " ".join(capsys.readouterr().out.split())


def test_it_measures_all_plans_and_stores_them_beside_a_server_that_uses_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = opened(tmp_path)  # which holds the lock
    code, words = said(capsys, "--data", str(tmp_path))
    assert code == 0
    assert f"stored in {tmp_path / NAME}; the server reads it at its next start" in words
    assert "not measured" not in words
    for plan, terms in MODELS.items():
        assert all(text in words for text in (plan, *(term.name for term in terms)))
    data.close()
    assert stored_coefficients(tmp_path) == Coefficients.from_json((tmp_path / NAME).read_text())
    assert all(any(values) for values in stored_coefficients(tmp_path).values)
    opened(tmp_path).close()
    assert not verify(tmp_path).problems


def test_as_json_without_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "--json")
    told = json.loads(text)
    assert code == 0
    assert told["stored"] is None
    assert Coefficients.from_json(text).to_json()
    assert set(told["off"]) == set(told["before"]) == set(MODELS)
    assert told["measured"] == len(MODELS) * len(TINY) * 2 * len(plan_costs.WHERE)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", "--quick", "--data", str(tmp_path / "data")]) == 2
    assert "there is no such folder; start the server once, or create it" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_an_error_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "QUICK", None)  # what it would measure
    assert cli.main(["calibrate", "--quick", "--data", "/proc"]) == 2  # where not even root can make files
    assert f"data directory /proc: {NAME} cannot be written there (" in capsys.readouterr().err


def test_a_damaged_file_is_named_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / NAME).write_text("{garbage")
    code, words = said(capsys, "--data", str(tmp_path))
    assert code == 0
    assert f"{tmp_path / NAME} cannot be read (" in words
    assert "); it will be replaced" in words
    assert Coefficients.from_json((tmp_path / NAME).read_text()).values
