"""Settings: four places they come from, in order; what is refused, and in whose words; what is printed."""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.server.settings import ServerSettings
from hullcast.network.link.limits import LinkLimits
from hullcast.network.node.settings import NodeSettings
from hullcast.network.settings.declaring import SettingsBase, declared, option
from hullcast.network.settings.flags import add_flags, example, from_arguments, report, toml
from hullcast.network.settings.loading import SECTIONS, load
from hullcast.network.settings.values import Unreadable, ValueType, read
from hullcast.network.wire.errors import BadSetting, InvariantBroken

if TYPE_CHECKING:
    from hullcast.network.settings.values import Value

KINDS: tuple[type[SettingsBase], ...] = (ServerSettings, NodeSettings)


def write(folder: Path, text: str) -> Path:
    path = folder / "hullcast.toml"
    path.write_text(text, "utf-8")
    return path


def parsed(kind: type[SettingsBase], *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser, kind)
    return parser.parse_args(words)


# --- where values come from ---------------------------------------------------------------------------------


def test_without_anything_every_value_is_its_default() -> None:
    loaded = load(ServerSettings)
    assert loaded.settings == ServerSettings()
    assert {setting.source for setting in loaded.values} == {"default"}


def test_the_environment_wins_over_the_file_and_flags_win_over_both(tmp_path: Path) -> None:
    file = write(tmp_path, '[server]\nname = "file"\nbatch_rows = 1\npending_bytes = "1MiB"\n[link]\nsilence_s = 9\n')
    loaded = from_arguments(
        ServerSettings,
        parsed(ServerSettings, "--config", str(file), "--name", "flag"),
        {"HULLCAST_NAME": "environment", "HULLCAST_BATCH_ROWS": "2", "PATH": "/bin"},
    )
    sources = {".".join(value.declared.path): value.source for value in loaded.values}
    assert (loaded.settings.name, sources["name"]) == ("flag", "--name")
    assert (loaded.settings.batch_rows, sources["batch_rows"]) == (2, "HULLCAST_BATCH_ROWS")
    assert (loaded.settings.pending_bytes, sources["pending_bytes"]) == (1 << 20, f"{file} [server]")
    assert (loaded.settings.link.silence_s, sources["link.silence_s"]) == (9.0, f"{file} [link]")
    assert (loaded.settings.prune, sources["prune"]) == (True, "default")


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[node]\nname = "here"')
    assert load(NodeSettings, environment={"HULLCAST_CONFIG": str(file)}).settings.name == "here"


def test_one_file_serves_all_processes_of_a_host(tmp_path: Path) -> None:
    file = write(tmp_path, '[server]\nname = "s"\n[node]\nname = "n"\n[link]\nheartbeat-s = 0.25\n')
    assert load(ServerSettings, file=file).settings.name == "s"
    assert load(NodeSettings, file=file).settings.name == "n"
    assert load(NodeSettings, file=file).settings.link.heartbeat_s == 0.25


def test_paths_in_a_file_start_from_its_folder_and_others_from_here(tmp_path: Path) -> None:
    file = write(tmp_path, '[server]\ndata = "data"\n[security]\nkey = "/etc/s.key"\nallow = "allow.toml"\n')
    settings = load(ServerSettings, file=file).settings
    assert (settings.data, settings.security.key) == (tmp_path / "data", Path("/etc/s.key"))
    assert load(ServerSettings, flags={"data": "data"}).settings.data == Path("data")
    assert load(ServerSettings, file=file, flags={"data": ""}).settings.data is None


def test_lists_come_as_lists_as_repeated_flags_or_with_commas(tmp_path: Path) -> None:
    both = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    file = write(tmp_path, f"[node]\nparent = {toml(both)}")
    assert load(NodeSettings, file=file).settings.parent == both
    assert load(NodeSettings, environment={"HULLCAST_PARENT": ", ".join(both)}).settings.parent == both
    arguments = parsed(NodeSettings, "--parent", both[0], "--parent", both[1])
    assert from_arguments(NodeSettings, arguments, {}).settings.parent == both


def test_a_switch_has_a_flag_for_both_ways() -> None:
    assert not from_arguments(ServerSettings, parsed(ServerSettings, "--no-prune"), {}).settings.prune
    assert from_arguments(ServerSettings, parsed(ServerSettings, "--prune"), {"HULLCAST_PRUNE": "no"}).settings.prune


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[server]\nlissten = 'x'", "[server] lissten = 'x': unknown setting; did you mean listen?"),
        ("[server]\nheartbeat_s = 1", "heartbeat_s = 1: this setting belongs to [link]"),
        ("[server]\nzzz = 1", "unknown setting; [server] has listen, "),
        ("[sever]\nname = 'x'", "unknown section; did you mean server?"),
        ("[zzz]", "unknown section; sections are server, "),
        ("name = 'x'", "unknown section"),
        ("server = 3", "server is a section; write [server]"),
        ("[server]\nbatch_rows = 1\nbatch-rows = 2", "batch_rows is given twice"),
        ("[server]\nname = 3", "must be text"),
        ("[server]\ndata = 3", "must be a path"),
        ("[server]\nprune = 1", "must be true or false"),
        ("[server]\nbatch_rows = true", "must be a whole number"),
        ("[server]\nbatch_rows = 1.5", "must be a whole number"),
        ("[server]\nbatch_rows = 0", "[server] batch_rows = 0: must be 1 or more"),
        ("[server]\npending_bytes = '9XiB'", "may have a unit (B, KiB, MiB"),
        ("[server]\nsegment_bytes = '1TiB'", "must be 64GiB or less"),
        ("[link]\nheartbeat_s = nan", "must be a number"),
        ("[link]\nheartbeat_s = inf", "must be a number"),
        ("[link]\nheartbeat_s = 0", "[link] heartbeat_s = 0.0: must be 0.01 or more"),
        ("[link]\nsilence_s = 1\nheartbeat_s = 0.9", "[link] silence_s = 1.0: needs at least three heartbeats"),
        ("[link]\nqueue_bytes = '1MiB'", "[link] queue_bytes = 1048576: needs at least 8388608"),
        ("[log]\nlevel = 'loud'", "[log] level = 'loud': must be one of debug, info, warning, error"),
        ("[server]\nlisten = 'tcp://x'", "[server] listen = 'tcp://x': the port is missing"),
        ("[server]\nlisten = 'tcp://10.0.0.1:1'", "[server] listen = 'tcp://10.0.0.1:1': other hosts can reach this"),
        ("[security]\nallow = 'a.toml'", "an allow list needs a key"),
        ("[server", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(text: str, what: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(BadSetting) as refused:
        load(ServerSettings, file=file)
    assert what in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"none\.toml.*No such file"):
        load(ServerSettings, file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(BadSetting, match=r"bad\.toml.*not valid TOML"):
        load(ServerSettings, file=tmp_path / "bad.toml")


def test_a_mistake_in_a_variable_or_flag_is_named_by_it() -> None:
    with pytest.raises(BadSetting, match=r"^HULLCAST_BATCH_ROWS = 'many': must be a whole number$"):
        load(ServerSettings, environment={"HULLCAST_BATCH_ROWS": "many"})
    with pytest.raises(BadSetting, match=r"^silence_s = 4.0: needs at least three heartbeats"):
        load(ServerSettings, flags={"heartbeat_s": "5"})
    with pytest.raises(BadSetting, match=r"^--max-children = 0: must be 1 or more$"):
        load(NodeSettings, flags={"max_children": "0"})


def test_a_misspelt_variable_is_refused_and_one_of_another_process_is_only_listed() -> None:
    with pytest.raises(BadSetting, match=r"HULLCAST_BATCH_ROW = '1'.*did you mean HULLCAST_BATCH_ROWS"):
        load(ServerSettings, environment={"HULLCAST_BATCH_ROW": "1"})
    loaded = load(ServerSettings, environment={"HULLCAST_PARENT": "tcp://127.0.0.1:1", "HULLCAST_HYPOTHESIS": "ci"})
    assert loaded.unused == ("HULLCAST_HYPOTHESIS", "HULLCAST_PARENT")
    assert "HULLCAST_PARENT" in report(loaded)


def test_an_object_made_in_code_is_checked_too() -> None:
    with pytest.raises(BadSetting, match=r"^batch_rows = 0: "):
        ServerSettings(batch_rows=0)
    with pytest.raises(BadSetting, match=r"^batch_rows = 0: "):
        replace(ServerSettings(), batch_rows=0)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_stays_on_loopback_unless_asked_for(kind: type[SettingsBase]) -> None:
    far: dict[str, object] = {"listen": "tcp://10.0.0.1:7600"}
    with pytest.raises(BadSetting, match=r"keygen.*--insecure"):
        load(kind, flags=far)
    load(kind, flags=far | {"insecure": True})
    load(kind, flags=far | {"key": "server.key", "allow": "allow.toml"})


def test_a_node_does_not_dial_a_far_parent_in_plain_text() -> None:
    with pytest.raises(BadSetting, match=r"^--parent = 'tcp://10.0.0.1:1': other hosts can reach this"):
        load(NodeSettings, flags={"parent": ["tcp://10.0.0.1:1"]})


def test_who_listens_everywhere_says_where_others_find_it() -> None:
    everywhere: dict[str, object] = {"listen": "tcp://*:7600", "insecure": True}
    with pytest.raises(BadSetting, match="--advertise"):
        load(ServerSettings, flags=everywhere)
    settings = load(ServerSettings, flags=everywhere | {"advertise": "tcp://db.example.org:7600"}).settings
    assert settings.advertise == "tcp://db.example.org:7600"


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "given_text", "expected"),
    [
        (ValueType.WHOLE, "rows", "1_000", 1000),
        (ValueType.WHOLE, "rows", 9_007_199_254_740_993, 9_007_199_254_740_993),
        (ValueType.WHOLE, "rows", "9007199254740993", 9_007_199_254_740_993),
        (ValueType.WHOLE, "x_bytes", "64 MiB", 64 << 20),
        (ValueType.WHOLE, "x_bytes", "1.5KiB", 1536),
        (ValueType.WHOLE, "x_bytes", 12.0, 12),
        (ValueType.NUMBER, "x_s", "500ms", 0.5),
        (ValueType.NUMBER, "x_seconds", "15min", 900.0),
        (ValueType.NUMBER, "x_s", "1e-1", 0.1),
        (ValueType.NUMBER, "x_s", 2, 2.0),
        (ValueType.YES_OR_NO, "x", " Yes ", True),
        (ValueType.YES_OR_NO, "x", "off", False),
        (ValueType.TEXTS, "x", " a,b ,, c", ("a", "b", "c")),
        (ValueType.TEXTS, "x", "", ()),
        (ValueType.FILE, "x", "", None),
    ],
)
def test_values_are_read_as_people_write_them(kind: ValueType, name: str, given_text: object, expected: Value) -> None:
    value = read(kind, name, given_text)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("kind", "given_text"),
    [
        *((ValueType.WHOLE, text) for text in ("", "x", "1.5", "1MiB", "0x10", "1__0", "1_", None, [1], "9" * 5000)),
        *((ValueType.NUMBER, text) for text in ("nan", "inf", "1e999", "", None, True, float("nan"))),
        *((ValueType.YES_OR_NO, text) for text in ("", "maybe", 1, None)),
        *((ValueType.TEXTS, text) for text in (3, [1], None)),
    ],
)
def test_other_values_are_refused(kind: ValueType, given_text: object) -> None:
    with pytest.raises(Unreadable):
        read(kind, "x", given_text)


@given(st.text())
def test_text_survives_the_way_through_toml(text: str) -> None:
    assert tomllib.loads(f"x = {toml(text)}")["x"] == text


# --- what is printed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_is_a_file_that_gives_the_same_settings(kind: type[SettingsBase], tmp_path: Path) -> None:
    loaded = load(
        kind,
        flags={
            "listen": "tcp://[::1]:0",
            "heartbeat_s": "0.3",
            "key": "/a b/c.key",
            "open": True,
            "log_level": "debug",
        },
    )
    text = report(loaded)
    assert "# --heartbeat-s" in text
    assert load(kind, file=write(tmp_path, text)).settings == loaded.settings


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_has_every_setting_at_its_default_and_is_a_file_one_can_use(
    kind: type[SettingsBase], tmp_path: Path
) -> None:
    text = example(kind)
    assert max(map(len, text.splitlines())) <= 120
    awake = "\n".join(
        line.removeprefix("# ") if " = " in line and "`" not in line else line for line in text.splitlines()
    )
    content = tomllib.loads(awake)
    assert set(content) == {kind.section, "link", "security", "log"} <= set(SECTIONS)
    assert load(kind, file=write(tmp_path, awake)).settings == kind()
    for each in declared(kind):
        assert each.name in content[each.section]
        assert each.flag in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_flag_with_help_and_numbers_say_what_raising_them_does(kind: type[SettingsBase]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, kind)
    text = " ".join(parser.format_help().split())
    for each in declared(kind):
        assert each.flag in text
        if each.kind in (ValueType.WHOLE, ValueType.NUMBER):
            assert each.option.raised
            assert each.option.least is not None
            assert each.option.most is not None


# --- declarations -------------------------------------------------------------------------------------------


def test_settings_lead_to_the_limits_of_the_link() -> None:
    assert ServerSettings().link.limits(LinkLimits().peers) == LinkLimits()
    settings = load(NodeSettings, flags={"heartbeat_s": "200ms", "max_children": "3"}).settings
    assert settings.link.limits(settings.max_children) == LinkLimits(heartbeat_s=0.2, peers=3)


def test_an_option_of_a_type_that_cannot_be_written_is_a_bug() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(SettingsBase):
        section: ClassVar[str] = "wrong"
        size: complex = option(1j, "cannot be")

    with pytest.raises(InvariantBroken, match=r"Wrong\.size"):
        declared(Wrong)
