# SPDX-License-Identifier: Apache-2.0
"""Options are checked before anything is read or written; errors name them and their values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.spark.options import Edge, OptionError, read_options, write_options

URI = "amqp://user:s3cret@broker:5672/vhost"
READ = {"uri": URI, "stream": "orders"}


def test_the_defaults_of_a_batch_read() -> None:
    options = read_options(READ, streaming=False)
    assert options.streams == ("orders",)
    assert options.starting == {"orders": Edge.EARLIEST}
    assert options.ending == {"orders": Edge.LATEST}
    assert options.records_per_trigger_max is None
    assert options.fail_on_data_loss


def test_a_streaming_read_starts_with_what_comes_next_unless_told() -> None:
    assert read_options(READ, streaming=True).starting == {"orders": Edge.LATEST}


def test_names_of_options_have_no_case() -> None:
    options = read_options({**READ, "MAXRECORDSPERTRIGGER": "5"}, streaming=True)
    assert options.records_per_trigger_max == 5


def test_offsets_are_given_by_stream() -> None:
    given = {
        **READ,
        "stream": '["b", "a", "c"]',
        "startingOffsets": '{"a": 7, "b": "Latest", "c": "2026-01-31T01:00:00+01:00"}',
    }
    options = read_options(given, streaming=False)
    assert options.streams == ("a", "b", "c")
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    assert options.starting == {"a": 7, "b": Edge.LATEST, "c": moment}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"uri": None}, "option 'uri' is missing"),
        ({"uri": "http://broker"}, "option 'uri': .*amqp://"),
        ({"uri": URI + "?colour=red"}, "option 'uri': unknown parameter 'colour'"),
        ({"stream": None}, "option 'stream' is missing"),
        ({"stream": "[1]"}, "option 'stream' must be the name of a stream"),
        ({"stream": '["a", "a"]'}, "each once"),
        ({"stream": "x" * 256}, "option 'stream' may have at most 255 bytes"),
        ({"startingOffsets": "first"}, "option 'startingOffsets' must be 'earliest', 'latest' or"),
        ({"startingOffsets": '{"x": 1}'}, "names stream 'x', which is not read: 'orders'"),
        ({"startingOffsets": "{}"}, "'startingOffsets' names no offset for stream 'orders'"),
        ({"startingOffsets": '{"orders": -1}'}, "got -1 for stream 'orders'"),
        ({"startingOffsets": '{"orders": true}'}, "got True for stream 'orders'"),
        ({"startingOffsets": '{"orders": "2026-01-31T00:00:00"}'}, "a moment with its zone"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads only"),
        ({"maxRecordsPerTrigger": "0"}, "'maxRecordsPerTrigger' must be a whole number from 1"),
        ({"maxRecordsPerTrigger": "many"}, "got 'many'"),
        ({"minPartitions": "2.5"}, "'minPartitions' must be a whole number"),
        ({"failOnDataLoss": "perhaps"}, "'failOnDataLoss' must be 'true' or 'false'"),
        ({"startingOffset": "latest"}, "unknown option 'startingOffset'.*startingOffsets"),
    ],
)
def test_a_bad_option_of_a_read_is_named(change: dict[str, str | None], text: str) -> None:
    given = {key: value for key, value in {**READ, **change}.items() if value is not None}
    with pytest.raises(OptionError, match=text) as caught:
        read_options(given, streaming=True)
    assert "s3cret" not in str(caught.value)


def test_a_trigger_limits_only_streaming_reads() -> None:
    with pytest.raises(OptionError, match="'maxRecordsPerTrigger' is for streaming reads only"):
        read_options({**READ, "maxRecordsPerTrigger": "5"}, streaming=False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"uri": ""}, "option 'uri' is missing"),
        ({"exchange": "ä" * 128}, "option 'exchange' may have at most 255 bytes of UTF-8; got 256"),
        ({"mandatory": "yes"}, "option 'mandatory' must be 'true' or 'false'; got 'yes'"),
        ({"stream": "orders"}, "unknown option 'stream' for writing.*exchange, routingKey"),
    ],
)
def test_a_bad_option_of_a_write_is_named(change: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        write_options({"uri": URI, "exchange": "x", **change})


def test_options_show_no_secret() -> None:
    assert "s3cret" not in repr(read_options(READ, streaming=True))
    assert "s3cret" not in repr(write_options({"uri": URI}))
