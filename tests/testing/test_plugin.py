# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: brokers of several scopes, settings by marker, connections and channels."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace

pytestmark = pytest.mark.usefixtures("same_build")


@pytest.fixture
def same_build(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """Have a pytest in another directory find the package that this one tests, and the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(headrace.__file__).parent.parent))
    pytester.plugins = ["headrace.testing.plugin"]


def run(pytester: pytest.Pytester, *words: str, **outcomes: int) -> pytest.RunResult:
    """Run the files of the directory; xdist only when it is asked for."""
    xdist = () if "-n" in words else ("-p", "no:xdist")
    options = ("-p", "headrace.testing.plugin", "--strict-markers", *xdist)
    result = pytester.runpytest_subprocess(*options, *words)
    result.assert_outcomes(**outcomes)
    return result


def test_connections_and_channels_are_of_the_tests_own_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        def test_blocking(headrace_channel, headrace_connection):
            headrace_channel.declare_queue("q")
            headrace_channel.publish("one", "q")
            assert headrace_connection.channel().get("q").text() == "one"

        def test_it_is_another(headrace_broker, headrace_channel, headrace_url):
            assert headrace_url == headrace_broker.url
            assert headrace_channel.declare_queue("q").message_count == 0

        def test_asyncio(headrace_async_connection, headrace_async_channel):
            async def work():
                async with headrace_async_channel as channel:
                    await channel.declare_queue("q")
                    await channel.publish("one", "q")
                async with headrace_async_connection as connection:
                    async with connection.channel() as other:
                        assert (await other.get("q")).text() == "one"
            asyncio.run(work())

        def test_of_a_broker_that_keeps(headrace_durable_broker, headrace_channel):
            headrace_channel.declare_queue("q")
            headrace_channel.publish("kept", "q")
            headrace_durable_broker.restart()
            assert headrace_channel.get("q").text() == "kept"

        def test_of_two(headrace_broker, headrace_durable_broker, headrace_url):
            pass
        """
    )
    result = run(pytester, passed=4, errors=1)
    result.stdout.fnmatch_lines(["*which broker is meant? The test has headrace_broker and*"])


def test_brokers_of_modules_and_of_the_run(pytester: pytest.Pytester) -> None:
    for name in ("test_one", "test_two"):
        pytester.makepyfile(
            **{
                name: """
                import pytest
                pytestmark = pytest.mark.usefixtures("headrace_module_broker")
                seen = set()

                @pytest.mark.parametrize("count", [0, 1])
                def test_of_the_module(headrace_module_broker, headrace_channel, count):
                    assert headrace_channel.declare_queue("q").message_count == count
                    headrace_channel.publish("x", "q")
                    seen.add(headrace_module_broker.port)
                    assert len(seen) == 1

                def test_of_the_run(headrace_session_broker, request):
                    known = request.config.stash.setdefault(KEY, headrace_session_broker.port)
                    assert known == headrace_session_broker.port
                    assert {known} != seen

                from conftest import KEY
                """
            }
        )
    pytester.makeconftest("import pytest\nKEY = pytest.StashKey()")
    run(pytester, passed=6)


def test_settings_come_from_markers_and_from_the_configuration(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nheadrace_settings =\n  frame_max = 8KiB\n  qmf = true\n")
    pytester.makepyfile(
        """
        import pytest
        from headrace.client.blocking import connect

        pytestmark = pytest.mark.headrace(channel_max=7)


        def told(broker):
            settings = broker._broker.settings
            return settings.frame_max, settings.qmf, settings.channel_max

        def test_of_the_module(headrace_broker):
            assert told(headrace_broker) == (8192, True, 7)

        @pytest.mark.headrace(channel_max=9)
        class TestClass:
            def test_of_the_class(self, headrace_broker):
                assert told(headrace_broker) == (8192, True, 9)

            @pytest.mark.headrace(frame_max="16KiB")
            def test_of_the_test(self, headrace_durable_broker):
                assert told(headrace_durable_broker) == (16384, True, 9)

        def test_one_for_all(headrace_module_broker):
            assert told(headrace_module_broker) == (8192, True, 7)

        def test_a_process(headrace_process, headrace_connection):
            for _ in range(7):
                headrace_connection.channel()
            with pytest.raises(Exception, match="channel"):
                headrace_connection.channel()
        """
    )
    run(pytester, passed=5)


def test_settings_that_cannot_be_are_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.headrace(frame_maximum=1)
        def test_unknown(headrace_broker):
            pass

        @pytest.mark.headrace(memory_max="much")
        def test_bad(headrace_broker):
            pass

        @pytest.mark.headrace(5)
        def test_without_a_name(headrace_broker):
            pass

        @pytest.mark.headrace(frame_max=4096)
        def test_of_the_run(headrace_session_broker):
            pass

        @pytest.mark.headrace(frame_max=4096)
        def test_of_the_module(headrace_module_broker):
            pass
        """
    )
    result = run(pytester, errors=5)
    for said in (
        "*setting frame_maximum (from test): there is no such setting; did you mean frame_max?",
        "*setting memory_max (from test): 'much' is not a size, e.g. 64MiB",
        "*takes settings by name, such as memory_max='64MiB'",
        "*headrace_session_broker takes settings of headrace_settings*",
        "*headrace_module_broker takes settings of the module's pytestmark*",
    ):
        result.stdout.fnmatch_lines([said])


def test_each_worker_of_xdist_has_its_own_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.usefixtures("headrace_session_broker")

        @pytest.mark.parametrize("number", range(4))
        def test_of_the_run(headrace_session_broker, headrace_channel, worker_id, number):
            headrace_channel.declare_queue("q")
            headrace_channel.publish(worker_id, "q")
            while (delivery := headrace_channel.get("q")) is not None:
                assert delivery.text() == worker_id
        """
    )
    run(pytester, "-p", "xdist", "-n", "2", passed=4)
