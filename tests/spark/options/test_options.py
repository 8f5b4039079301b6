# SPDX-License-Identifier: Apache-2.0
"""Options are checked before anything is read or written; errors name them and their values."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.client.url import parse_url
from headrace.columns.options.options import Edge, OptionError, Streams, read_options, write_options
from headrace.columns.options.page import render_page
from headrace.columns.options.table import OPTIONS
from headrace.columns.options.uri import split_urls

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md"
URI = "amqp://user:s3cret@broker:5672/vhost"
READ = {"uri": URI, "stream": "orders"}


def test_the_defaults_of_a_batch_read() -> None:
    options = read_options(READ, streaming=False)
    assert options.streams == Streams(names=("orders",))
    assert options.starting.for_streams(("orders",)) == {"orders": Edge.EARLIEST}
    assert options.ending.for_streams(("orders",)) == {"orders": Edge.LATEST}
    assert options.records_per_trigger_max is None
    assert options.fail_on_data_loss


def test_a_streaming_read_starts_with_what_comes_next_unless_told() -> None:
    assert read_options(READ, streaming=True).starting.everywhere is Edge.LATEST


def test_names_of_options_have_no_case() -> None:
    options = read_options({**READ, "MAXRECORDSPERTRIGGER": "5"}, streaming=True)
    assert options.records_per_trigger_max == 5


def test_offsets_are_given_by_stream() -> None:
    texts = {
        **READ,
        "stream": '["b", "a", "c"]',
        "startingOffsets": '{"a": 7, "b": "Latest", "c": "2026-01-31T01:00:00+01:00"}',
    }
    options = read_options(texts, streaming=False)
    assert options.streams == Streams(names=("a", "b", "c"))
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    assert options.starting.by_stream == {"a": 7, "b": Edge.LATEST, "c": moment}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"uri": None}, "option 'uri' is missing"),
        ({"uri": "[]"}, "option 'uri' must be the broker's URL"),
        ({"uri": '["amqp://a", "http://b"]'}, "option 'uri': .*amqp://"),
        ({"uri": '["amqp://a:s3cret'}, "option 'uri' is not JSON"),
        ({"host": "b"}, "options 'uri' and 'host' contradict each other"),
        ({"uri": None, "port": "5672"}, "option 'port' needs option 'host'"),
        ({"uri": None, "host": "b", "port": "0"}, "'port' must be a whole number from 1 to 65535"),
        ({"user": "me"}, "'user' contradicts option 'uri', which sets it too"),
        ({"password": "s3cret"}, "'password' contradicts option 'uri', which sets it too"),
        ({"vhost": "other"}, "'vhost' contradicts option 'uri', which sets it too"),
        ({"uri": "amqps://b?verify=verify_peer", "tlsVerify": "false"}, "'tlsVerify' contradicts"),
        ({"tlsCa": "ca.pem"}, "option 'uri': TLS parameters need an amqps:// URL"),
        ({"uri": "amqps://b", "tlsKey": "key.pem"}, "option 'tlsKey' needs option 'tlsCert'"),
        ({"saslMechanism": "GUESS"}, "must be 'PLAIN', 'AMQPLAIN', 'SCRAM-SHA-256', 'EXTERNAL', "),
        ({"protocolVersion": "1.0"}, "must be '0-8', '0-9', '0-9-1' or '0-10'; got '1.0'"),
        ({"reconnectTimeout": "5"}, "'reconnectTimeout' must be a time with its unit"),
        ({"uri": "http://broker"}, "option 'uri': .*amqp://"),
        ({"uri": URI + "?colour=red"}, "option 'uri': unknown parameter 'colour'"),
        ({"stream": None}, "option 'stream' is missing"),
        ({"stream": "[1]"}, "option 'stream' must be the name of a stream"),
        ({"stream": '["a", "a"]'}, "each once"),
        ({"stream": "x" * 256}, "option 'stream' may have at most 255 bytes"),
        ({"startingOffsets": "first"}, "option 'startingOffsets' must be 'earliest', 'latest' or"),
        ({"startingOffsets": '{"x": 1}'}, "names stream 'x', which is not read: 'orders'"),
        ({"startingOffsets": "{}"}, "'startingOffsets' names no offset for stream 'orders'"),
        ({"startingOffsets": '{"orders": -3}'}, "got -3 for stream 'orders'"),
        ({"startingOffsets": '{"orders": true}'}, "got True for stream 'orders'"),
        ({"startingOffsets": '{"orders": "2026-01-31T00:00:00"}'}, "a moment with its zone"),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads only"),
        ({"maxRecordsPerTrigger": "0"}, "'maxRecordsPerTrigger' must be a whole number from 1"),
        ({"maxRecordsPerTrigger": "many"}, "got 'many'"),
        ({"minPartitions": "2.5"}, "'minPartitions' must be a whole number"),
        ({"failOnDataLoss": "perhaps"}, "'failOnDataLoss' must be 'true' or 'false'"),
        ({"streams": "a,b"}, "options 'stream' and 'streams' contradict each other"),
        ({"queue": "q"}, "options 'stream' and 'queue' contradict each other"),
        (
            {"stream": None, "streamPattern": "("},
            "'streamPattern' is not a valid regular expression",
        ),
        ({"stream": None, "streams": "a,,b"}, "option 'streams' must be names of streams"),
        ({"stream": None, "queue": "q", "filter": "x"}, "'filter' is for reading streams only"),
        ({"startingTimestamp": "2026-01-31T00:00:00"}, "a moment: milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"x": 1}'}, "names stream 'x', which is not read"),
        (
            {"startingTimestamp": "0", "startingOffsets": "latest"},
            "options 'startingOffsets' and 'startingTimestamp' contradict each other",
        ),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "needs option 'startingTimestamp'"),
        ({"endingTimestamp": "0"}, "'endingTimestamp' is for batch reads only"),
        ({"maxBytesPerTrigger": "1x"}, "'maxBytesPerTrigger' must be a number of bytes"),
        ({"maxTriggerDelay": "1m"}, "'maxTriggerDelay' needs option 'minRecordsPerTrigger'"),
        ({"minRecordsPerTrigger": "9", "maxRecordsPerTrigger": "5"}, "is 9, more than 5"),
        (
            {"maxOffsetsPerTrigger": "9", "maxRecordsPerTrigger": "5"},
            "options 'maxOffsetsPerTrigger' and 'maxRecordsPerTrigger' are the same",
        ),
        ({"filterMatchUnfiltered": "true"}, "needs option 'filter'"),
        ({"exchange": "x"}, "option 'exchange' is for writing only"),
        ({"startingOfsets": "latest"}, "did you mean 'startingOffsets'"),
        ({"startingOffset": "latest"}, "unknown option 'startingOffset'.*startingOffsets"),
    ],
)
def test_a_bad_option_of_a_read_is_named(change: dict[str, str | None], text: str) -> None:
    texts = {key: value for key, value in {**READ, **change}.items() if value is not None}
    with pytest.raises(OptionError, match=text) as caught:
        read_options(texts, streaming=True)
    assert "s3cret" not in str(caught.value)


def test_a_trigger_limits_only_streaming_reads() -> None:
    with pytest.raises(OptionError, match="'maxRecordsPerTrigger' is for streaming reads only"):
        read_options({**READ, "maxRecordsPerTrigger": "5"}, streaming=False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"uri": ""}, "option 'uri' must be the broker's URL"),
        ({"exchange": "ä" * 128}, "option 'exchange' may have at most 255 bytes of UTF-8; got 256"),
        ({"mandatory": "yes"}, "option 'mandatory' must be 'true' or 'false'; got 'yes'"),
        ({"stream": "orders"}, "option 'stream' is for reading only"),
        ({"topic": "x"}, "unknown option 'topic' for writing.*exchange, routingKey"),
        ({"asyncProgressTrackingEnabled": "true"}, "could have other rows"),
        ({"_asyncprogresstrackingoverridesinksupportcheck": "true"}, "is refused: Spark would"),
    ],
)
def test_a_bad_option_of_a_write_is_named(change: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        write_options({"uri": URI, "exchange": "x", **change})


def test_options_show_no_secret() -> None:
    assert "s3cret" not in repr(read_options(READ, streaming=True))
    assert "s3cret" not in repr(write_options({"uri": URI}))


def test_the_page_is_in_step_with_the_table() -> None:
    assert PAGE.read_text() == render_page()


def test_the_table_is_sound() -> None:
    names = [option.name for option in OPTIONS]
    spelled = [*names, *(alias for option in OPTIONS for alias in option.aliases)]
    assert len({name.lower() for name in spelled}) == len(spelled)
    for option in OPTIONS:
        assert {*option.excludes, option.needs} - {""} <= set(names), option.name
        assert "|" not in option.doc, option.name


def test_a_broker_may_be_told_in_pieces() -> None:
    texts = {
        "host": "one,::1",
        "user": "spark",
        "password": "p@ss:w/rd",
        "vhost": "a/b",
        "tls": "true",
        "tlsCa": "/etc/a ca.pem",
        "tlsVerify": "false",
        "saslMechanism": "amqplain",
        "protocolVersion": "0-9",
        "stream": "orders",
    }
    one, two = map(parse_url, split_urls(read_options(texts, streaming=True).uri))
    assert (one.host, two.host, one.port, one.tls) == ("one", "::1", 5671, True)
    assert (one.username, one.password, one.vhost) == ("spark", "p@ss:w/rd", "a/b")
    assert (one.cacertfile, one.verify, one.mechanism) == ("/etc/a ca.pem", False, "AMQPLAIN")
    assert one.version.label == "0-9"


def test_a_url_is_completed_by_other_options() -> None:
    texts = {"uri": "amqp://broker?heartbeat=5", "user": "me", "password": "s3cret", "stream": "s"}
    (url,) = split_urls(read_options(texts, streaming=True).uri)
    settings = parse_url(url)
    assert (settings.username, settings.password, settings.heartbeat_s) == ("me", "s3cret", 5)


def test_moments_may_be_milliseconds() -> None:
    texts = {**READ, "startingTimestamp": "1769817600000", "endingOffsets": '{"orders": -1}'}
    options = read_options(texts, streaming=False)
    assert options.starting.everywhere == datetime(2026, 1, 31, tzinfo=UTC)
    assert options.starting.strict
    assert options.ending.by_stream == {"orders": Edge.LATEST}
    texts["startingOffsetsByTimestampStrategy"] = "latest"
    assert not read_options(texts, streaming=False).starting.strict


def test_times_and_sizes_have_units() -> None:
    texts = {
        **READ,
        "maxBytesPerTrigger": "16m",
        "minRecordsPerTrigger": "5",
        "maxTriggerDelay": "1.5m",
        "reconnectTimeout": "500 ms",
    }
    options = read_options(texts, streaming=True)
    assert options.bytes_per_trigger_max == 16 << 20
    assert (options.trigger_delay_s, options.reconnect_timeout_s) == (90.0, 0.5)


def test_kafka_s_names_are_known() -> None:
    texts = {"uri": URI, "subscribe": "a,b", "maxOffsetsPerTrigger": "5"}
    options = read_options(texts, streaming=True)
    assert options.streams == Streams(names=("a", "b"))
    assert options.records_per_trigger_max == 5


def test_a_queue_has_a_group_in_any_case() -> None:
    options = read_options({"uri": URI, "queue": "work"}, streaming=True)
    assert (options.queue, options.group, options.streams) == ("work", "spark", None)


def test_secrets_are_read_from_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("p@ss word\n")
    monkeypatch.setenv("AMQP_PASSWORD", "of env")
    monkeypatch.setenv("AMQP_URI", "amqps://ada:hidden@a/v")

    def uri(**given: str) -> str:
        return " ".join(split_urls(read_options({"stream": "s", **given}, streaming=False).uri))

    assert uri(host="h", user="ada", passwordFile=str(path)) == "amqp://ada:p%40ss%20word@h"
    assert uri(uri="amqp://ada@h", passwordenv="AMQP_PASSWORD") == "amqp://ada:of%20env@h"
    assert uri(uriEnv="AMQP_URI") == "amqps://ada:hidden@a/v"
    path.write_text('["amqp://a", "amqp://b"]')
    assert uri(uriFile=str(path)) == "amqp://a amqp://b"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"host": "h", "passwordFile": "/none"}, "'/none' cannot be read: No such file"),
        ({"host": "h", "passwordEnv": "NONE"}, "without the environment variable 'NONE'"),
        ({"host": "h", "password": "a", "passwordEnv": "HIDDEN"}, "contradict each other"),
        ({"host": "h", "uriEnv": "URI"}, "'uri' and 'host' contradict each other"),
        ({"uriFile": "f", "uriEnv": "URI"}, "contradict each other"),
        ({"uriEnv": "HIDDEN"}, "option 'uriEnv': option 'uri'"),
    ],
)
def test_a_secret_that_cannot_be_read_is_told_but_not_shown(
    given: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN", "hunter2")
    monkeypatch.setenv("URI", "amqp://ada:hunter2@h")
    with pytest.raises(OptionError, match=text) as caught:
        read_options({"stream": "s", **given}, streaming=False)
    assert "hunter2" not in str(caught.value)
