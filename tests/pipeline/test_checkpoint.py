# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the forms that Spark 4.3 writes, read and rewound without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.run import checkpoint
from headrace.pipeline.run.state import StateDirectory

V1 = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795485471051,"conf":{}}'
V2 = V1.replace("v1", "v2").replace('"conf":{}', '"conf":{},"sourceMetadataInfo":{}')


def offset_json(**positions: int) -> str:
    offset = {"v": 2, "broker": "b", "epoch": 0, "ids": {}, "pos": positions}
    return json.dumps(offset, separators=(",", ":"))


def write_checkpoint(home: Path, *batches: str, state: str = "") -> StateDirectory:
    """A state directory with the checkpoint of one query, with finished batches only."""
    folder = home / "checkpoints" / "lake"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, text in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(text)
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "metadata").write_text('{"id":"6a96430b-942f-431e-ba7e-f5b8ba507239"}')
    if state:
        (folder / "state" / state).parent.mkdir(parents=True)
        (folder / "state" / state).write_bytes(b"\0")
    return StateDirectory(home)


def test_the_log_of_version_1_numbers_its_sources_by_line(tmp_path: Path) -> None:
    state = write_checkpoint(
        tmp_path,
        "\n".join([V1, offset_json(a=5), offset_json(b=7)]),
        "\n".join([V1, offset_json(a=9), offset_json(b=8)]),
    )
    assert list(checkpoint.describe_checkpoints(state, None))[1:] == [
        "  batch 0, done: up to a 5; b 7",
        "  batch 1, done: up to a 9; b 8",
    ]
    checkpoint.apply_plan(state, checkpoint.plan_reset(state, "lake", None, {"a": 6, "b": 2}))
    written = (state.checkpoints / "lake" / "offsets" / "2").read_text()
    assert written == "\n".join([V1, offset_json(a=6), offset_json(b=2)])


@pytest.mark.parametrize("names", [("0", "1"), ("early", "late")])
def test_the_log_of_version_2_names_its_sources_in_any_order(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    first, second = names
    state = write_checkpoint(
        tmp_path,
        "\n".join([V2, f"{second}:{offset_json(b=7)}", f"{first}:{offset_json(a=5)}"]),
        "\n".join([V2, f"{first}:{offset_json(a=9)}", f"{second}:{offset_json(b=8)}"]),
    )
    plan = checkpoint.plan_reset(state, "lake", 0, {})
    assert plan.text.endswith("5 records are read again, and written again")
    plan = checkpoint.plan_reset(state, "lake", None, {"a": 6, "b": 2})
    assert plan.text == "lake: continue at a 6; b 2: 9 records are read again"
    checkpoint.apply_plan(state, plan)
    written = (state.checkpoints / "lake" / "offsets" / "2").read_text()
    assert written == "\n".join([V2, f"{first}:{offset_json(a=6)}", f"{second}:{offset_json(b=2)}"])


def test_sources_that_a_query_was_given_later_have_no_count(tmp_path: Path) -> None:
    """A plan counts no records for a source without an offset in the older batch."""
    state = write_checkpoint(
        tmp_path,
        "\n".join([V2, "a:" + offset_json(a=5)]),
        "\n".join([V2, "b:" + offset_json(b=8), "a:" + offset_json(a=9)]),
    )
    plan = checkpoint.plan_reset(state, "lake", 0, {})
    assert plan.text.endswith("what came since is read again, and written again")


def test_one_position_is_enough_and_a_source_without_an_offset_stays_so(tmp_path: Path) -> None:
    """New positions of some streams leave the other sources unchanged."""
    state = write_checkpoint(tmp_path, "\n".join([V1, offset_json(a=5), "-", offset_json(b=7)]))
    plan = checkpoint.plan_reset(state, "lake", None, {"b": 2})
    assert plan.text == "lake: continue at a 5; nothing; b 2: 5 records are read again"
    checkpoint.apply_plan(state, plan)
    written = (state.checkpoints / "lake" / "offsets" / "1").read_text()
    assert written == "\n".join([V1, offset_json(a=5), "-", offset_json(b=2)])
    with pytest.raises(PipelineError, match="it reads no 'x', but a, b"):
        checkpoint.plan_reset(state, "lake", None, {"x": 2})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("v3\n{}\n0:{}", "offsets/0 has the format 'v3'; v1 and v2 are known"),
        ("", "offsets/0 has the format ''; v1 and v2 are known"),
        ('v1\n{}\n{"pos":', "offsets/0 is damaged in line 3"),
        ('v2\n{}\n{"pos":{}}', "offsets/0 is damaged in line 3"),
        ("v2\n{}\n0:{}\n0:{}", "offsets/0 is damaged in line 4"),
        ("v2\n{}\n0:\xff", "offsets/0 is damaged in line 3"),
        ("v1", "offsets/0 is damaged in line 2"),
    ],
)
def test_a_log_that_cannot_be_read_is_named(tmp_path: Path, text: str, fault: str) -> None:
    """A damaged log of offsets is an error that names the file and the line."""
    state = write_checkpoint(tmp_path, text)
    with pytest.raises(PipelineError, match=fault):
        list(checkpoint.describe_checkpoints(state, None))
    plan = checkpoint.plan_reset(state, "lake", None, {})
    assert plan.text == "lake: forget 1 batches, and start over"


@pytest.mark.parametrize(
    "file",
    [
        "0/0/1.delta",
        "0/0/1.zip",
        "0/0/1.changelog",
        "0/0/1_3509e6cf-e34d-4e07-bd37-c6945aa870e8.changelog",
        "0/_metadata/metadata",
    ],
)
def test_a_query_with_state_is_not_rewound(tmp_path: Path, file: str) -> None:
    state = write_checkpoint(
        tmp_path, "\n".join([V1, offset_json(a=5)]), "\n".join([V1, offset_json(a=9)]), state=file
    )
    assert "with state" in next(iter(checkpoint.describe_checkpoints(state, None)))
    with pytest.raises(PipelineError, match=r"has state between batches \(windows or rows\)"):
        checkpoint.plan_reset(state, "lake", 0, {})
