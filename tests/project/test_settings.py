# SPDX-License-Identifier: Apache-2.0
"""The table of settings: where values come from, what is refused, what the manual says."""

import re
from pathlib import Path

import pytest

import headrace
from headrace.model.arguments.aliases import QUEUE_ALIASES
from headrace.model.arguments.values import QUEUE_ARGUMENTS
from headrace.model.policy.policy import HARMLESS, KEYS
from headrace.server.config.settings import (
    MIB,
    OTHER_VARIABLES,
    SETTINGS,
    SettingError,
    Settings,
    former_names,
    load,
    unknown_variables,
)
from headrace.server.config.settings_page import manual

ROOT = Path(__file__).parent.parent.parent


def test_defaults_are_within_their_own_bounds() -> None:
    for row in SETTINGS:
        assert row.read(row.default, "default") == row.default, row.name
    assert load({}, {}) == Settings()


def test_flag_beats_variable_beats_file_beats_default(tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text('port = 1\nheartbeat_s = 1\nframe_max = "8KiB"\n')
    environment = {"HEADRACE_PORT": "2", "HEADRACE_HEARTBEAT_S": "2"}
    settings = load({"port": 3, "host": None}, environment, config)
    assert (settings.port, settings.heartbeat_s, settings.frame_max) == (3, 2, 8192)
    assert settings.host == Settings().host


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text("memory = true\n")
    assert load({}, {"HEADRACE_CONFIG": str(config)}).memory is True


@pytest.mark.parametrize(
    ("text", "octets"), [("65536", 65536), ("64k", 65536), ("64 KiB", 65536), ("1MiB", MIB)]
)
def test_sizes_have_units(text: str, octets: int) -> None:
    assert load({"read_size": text}, {}).read_size == octets


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("HEADRACE_PORT", "x", "'x' is not a whole number"),
        ("HEADRACE_PORT", "5k", "'5k' is not a whole number"),
        ("HEADRACE_PORT", "65536", "65536 is more than 65535"),
        ("HEADRACE_PORT", "-1", "'-1' is not a whole number"),
        ("HEADRACE_FRAME_MAX", "4095", "4095 is less than 4096"),
        ("HEADRACE_FRAME_MAX", "much", "'much' is not a size, e.g. 64MiB"),
        ("HEADRACE_MEMORY", "maybe", "'maybe' must be true or false"),
        ("HEADRACE_HANDSHAKE_S", "nan", "'nan' is not a number"),
        ("HEADRACE_LOG_LEVEL", "loud", "'loud' is not one of debug, info, warning, error"),
    ],
)
def test_a_bad_value_is_named_with_its_source(variable: str, text: str, reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        load({}, {variable: text})
    name = variable.removeprefix("HEADRACE_").lower()
    assert str(caught.value) == f"setting {name} (from {variable}): {reason}"


def test_a_bad_flag_is_named_as_flag() -> None:
    with pytest.raises(SettingError, match=r"^setting port \(from --port\): "):
        load({"port": "many"}, {"HEADRACE_PORT": "1"})


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    for content, said in [
        ("prot = 1", r"setting prot .*headrace.toml.*no such setting; did you mean port\?"),
        ("zzz = 1", r"setting zzz .*headrace.toml.*there is no such setting$"),
        ("port = true", "setting port .*headrace.toml.*True is not a whole number"),
        ("port = ", "setting config .*headrace.toml.*not valid TOML"),
    ]:
        config.write_text(content)
        with pytest.raises(SettingError, match=said):
            load({}, {}, config)
    with pytest.raises(SettingError, match=r"setting config .*absent.toml.*No such file"):
        load({}, {}, tmp_path / "absent.toml")


def test_a_setting_may_be_given_by_its_former_name(tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text("errand_messages_max = 3\n")
    assert load({}, {}, config).job_messages_max == 3
    variable = {"HEADRACE_ERRAND_MESSAGES_MAX": "4"}
    assert load({}, variable, config).job_messages_max == 4
    flags = {"errand_messages_max": "5"}
    assert load(flags, variable, config).job_messages_max == 5
    assert load({**flags, "job_messages_max": 6}, variable, config).job_messages_max == 6
    with pytest.raises(SettingError, match=r"^setting job_messages_max \(from --errand-messages"):
        load({"errand_messages_max": "many"}, {})
    kept = "the former name still works"
    assert former_names(flags, variable, config) == [
        f"the key errand_messages_max of {config} is now job_messages_max; {kept}",
        f"the variable HEADRACE_ERRAND_MESSAGES_MAX is now HEADRACE_JOB_MESSAGES_MAX; {kept}",
        f"the flag --errand-messages-max is now --job-messages-max; {kept}",
    ]
    assert unknown_variables(variable) == []
    assert former_names({"job_messages_max": 6}, {}) == []


def test_a_variable_that_is_no_setting_is_told() -> None:
    told = unknown_variables(
        {"HEADRACE_PORT": "1", "HEADRACE_URL": "", "HEADRACE_TEST_URL": "", "PATH": "", "port": ""}
        | {"HEADRACE_MEMROY_MAX": "1GiB", "HEADRACE_SERVICE_HOST": "10.0.0.1", "HEADRACE_ZZZ": "1"}
    )
    ignored = "is not a setting and is ignored"
    assert told == [
        f"the variable HEADRACE_MEMROY_MAX {ignored}; did you mean HEADRACE_MEMORY_MAX?",
        f"the variable HEADRACE_ZZZ {ignored}",
    ]


def test_ports_as_kubernetes_says_them_are_ignored_and_told() -> None:
    links = {"HEADRACE_PORT": "tcp://10.0.0.1:5672", "HEADRACE_TLS_PORT": "tcp://10.0.0.1:5671"}
    links |= {"HEADRACE_PORT_5672_TCP": "tcp://10.0.0.1:5672", "HEADRACE_SERVICE_PORT": "5672"}
    settings = load({}, links)
    assert (settings.port, settings.tls_port) == (5672, None)
    assert unknown_variables(links) == [
        f"the variable {variable} is ignored: {links[variable]} is the address of a Kubernetes "
        f"Service named {service!r}, not a port; `enableServiceLinks: false` in the pod's "
        "specification removes it"
        for variable, service in (
            ("HEADRACE_PORT", "headrace"),
            ("HEADRACE_TLS_PORT", "headrace-tls"),
        )
    ]
    with pytest.raises(SettingError, match="not a whole number"):
        load({"port": "tcp://10.0.0.1:5672"}, {})


def test_hosts_are_flags_as_often_as_there_are_addresses() -> None:
    assert load({"host": ("127.0.0.1", "::1")}, {}).host == "127.0.0.1,::1"


def test_every_variable_of_the_package_is_known() -> None:
    named = set()
    for path in Path(headrace.__file__).parent.rglob("*.py"):
        named |= set(re.findall(r'"HEADRACE_([A-Z_]+)"', path.read_text()))
    assert named
    known = {row.name for row in SETTINGS} | set(OTHER_VARIABLES)
    assert {name.lower() for name in named} <= known


def test_tls_needs_certificate_and_key() -> None:
    with pytest.raises(SettingError, match=r"setting tls_cert .*: tls_port needs it"):
        load({"tls_port": 0}, {})


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(load({"default_pass": "hunter2"}, {}))
    with pytest.raises(SettingError) as caught:
        load({"default_pass": 7}, {})
    assert "7" not in str(caught.value)


def test_the_manual_is_in_step_with_the_table() -> None:
    assert (ROOT / "docs" / "reference" / "settings.md").read_text() == manual()


def test_every_argument_and_every_key_of_a_policy_is_documented() -> None:
    queues = "".join(
        (ROOT / "docs" / name).read_text()
        for name in ("reference/queues.md", "reference/streams.md", "guides/deduplication.md")
    )
    for name in (*QUEUE_ARGUMENTS, *QUEUE_ALIASES):
        shown = re.sub(r"^((x-)?qpid[.-]fairshare)-[0-9]$", r"\1-N", name)
        assert f"`{shown}`" in queues, name
    policies = (ROOT / "docs" / "guides" / "policies.md").read_text()
    for name in (*KEYS, *HARMLESS):
        shown = "ha-*" if name.startswith("ha-") else name
        assert f"`{shown}`" in policies, name
