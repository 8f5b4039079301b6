# SPDX-License-Identifier: Apache-2.0
"""Measure the console over a broker with many queues.

    PYTHONPATH=build/compiled .venv/bin/python tools/console_scale.py [--moving 1000]

The tool starts `headrace serve`, declares the queues, measures the delivery latency of W6, and
starts `headrace console`. Then it prints, for each request, the median and the maximum time in
milliseconds and the processor time of the console. The requests are a page of 500 queues sorted by
each column, the overview, the plain list, and the console's pages as a browser opens them;
``--pages`` measures only these pages. At the end it measures W6 again while two clients request
pages. ``--moving`` is the number of queues that get a message between two samples.

"W6 beside sums" is measured before the console starts: an independent process adds numbers. Two
processors of a machine share memory and caches, and often a core, so any other process slows a
broker.

W6 needs two processors, one for the broker and one for itself. So the broker gets the first
processor alone, and all other processes share the rest; W6 has priority over the console and its
clients. For a user who may not set priorities (CAP_SYS_NICE) the tool prints a remark and measures
without them.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.client import blocking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIST = "/api/queues"
PAGE = f"{LIST}?page=1&page_size=500"
PATHS = (
    "/api/overview",
    "/api/vhosts",
    PAGE,
    f"{LIST}?page=9&page_size=500",
    f"{PAGE}&name=99",
    f"{PAGE}&name=7.7$&use_regex=true",
    f"{PAGE}&msg_rates_age=600&msg_rates_incr=5",
)
PAGES = (
    "/",
    "/queues",
    "/queues?page=1000",
    "/queues?sort=messages&sort_reverse=true",
    "/queues?sort=message_stats.publish_details.rate&sort_reverse=true",
    "/queues?sort=name&sort_reverse=true",
    "/queues?name=99",
    "/queues?name=7.7$&use_regex=true",
    "/queues?page_size=500",
    "/streams",
    "/queues/%2F/orders.1",
    "/queues/%2F/orders.1/topology",
    "/exchanges",
    "/exchanges/%2F/amq.default",
    "/exchanges/%2F/amq.default/topology",
    "/bindings",
    "/bindings?name=99&sort=destination&sort_reverse=true",
    "/vhosts",
    "/vhosts/%2F",
    "/charts/totals/messages?span=1h",
    "/charts/queue/%2F/orders.1?span=1m",
)
BUSY = ("/api/overview", f"{PAGE}&sort=messages&sort_reverse=true", f"{PAGE}&sort=name")
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
TIMEOUT_S = 120.0
MS = 1000.0
SCRAPES = 3
PAGE_MS_MAX = 200.0  # The maximum time of a page.
MANY = 100  # Queues with a message.
BUSY_S = 0.1  # The pause between two requests while W6 is measured.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--moving", type=int, default=0)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--pages", action="store_true", help="measure the pages alone")
    parser.add_argument("--latency-runs", type=int, default=7)
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        socket = directory / "management.sock"
        serve = ("serve", "--port=0", "--memory", f"--management-socket={socket}")
        broker = stack.enter_context(start_command(*serve))
        declare(broker["amqp"], options.queues)
        separate(broker["pid"])
        if not options.pages:
            before = latency(broker["amqp"], options.latency_runs)
            print(f"W6 without a console: {before}")
            with computing():
                print(f"W6 beside sums: {latency(broker['amqp'], options.latency_runs)}")
        began = time.perf_counter()
        console = ("console", f"--socket={socket}", "--console-port=0", "--metrics-port=0")
        ready = stack.enter_context(start_command(*console))
        address = ready["http"].removeprefix("http://")
        while queue_count(address) < options.queues:
            time.sleep(0.1)
        waited = time.perf_counter() - began
        print(f"{options.queues} queues; the console has them all after {waited:.1f} s")
        if options.moving:
            stack.enter_context(moving(broker["amqp"], options.moving))
            time.sleep(11)  # Two samples.
        measure_pages(address, ready["pid"], options.runs)
        if options.pages:
            return
        measure_requests(address, ready["pid"], options.runs)
        measure_metrics(ready["metrics"].removeprefix("http://").partition("/")[0], ready["pid"])
        print(f"{memory(ready['pid']):8.1f} MiB in the console's process")
        print(f"W6 while the console samples: {latency(broker['amqp'], options.latency_runs)}")
        with asking(address):
            print(f"W6 and requests meanwhile: {latency(broker['amqp'], options.latency_runs)}")


@contextmanager
def start_command(*words: str) -> Iterator[dict[str, str]]:
    """Run a command of headrace; yield the addresses of its ready line."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        yield {**json.loads(ready[ready.index("{") :]), "pid": str(process.pid)}
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def separate(pid: str) -> None:
    """Give the broker one processor; all processes started later share the others."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        print("one processor: W6 shares it with the console and its clients")
        return
    for thread in Path("/proc", pid, "task").iterdir():
        os.sched_setaffinity(int(thread.name), {first})
    os.sched_setaffinity(0, others)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("no right to set priorities: W6 waits for the console and its clients")
    else:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def first_in_line() -> None:
    """Raise the priority of this process, if the user may."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def memory(pid: str) -> float:
    """Return the resident memory of a process, in MiB."""
    pages = int(Path("/proc", pid, "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def declare(url: str, count: int) -> None:
    """Declare the queues, most of them empty."""
    with blocking.connect(of(url)) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.declare_queue(f"orders.{number}", durable=False)
        for number in range(0, count, max(1, count // MANY)):
            channel.publish(b"message", routing_key=f"orders.{number}")


def of(address: str) -> str:
    """Return the URL of a broker for the guest user."""
    return f"amqp://guest:guest@{address.rpartition('/')[2]}/%2F"


@contextmanager
def moving(address: str, count: int) -> Iterator[None]:
    """Publish a message to each of `count` queues and consume it, repeatedly, during the block."""
    over = threading.Event()

    def work() -> None:
        with blocking.connect(of(address)) as connection:
            channel = connection.channel(confirm=False)
            for number in itertools.cycle(range(count)):
                channel.publish(b"message", routing_key=f"orders.{number}")
                if over.is_set():
                    return
                if number % 1000 == 999 and over.wait(4.5 * 1000 / count):
                    return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(TIMEOUT_S)


@contextmanager
def computing() -> Iterator[None]:
    """Run a process that adds numbers from more memory than the caches have, during the block."""
    summing = "numbers = list(range(10_000_000))\nprint(flush=True)\nwhile True: sum(numbers)"
    command = (sys.executable, "-c", summing)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@contextmanager
def asking(address: str) -> Iterator[None]:
    """Request pages repeatedly on two connections, during the block."""
    over = threading.Event()

    def work() -> None:
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        for path in itertools.cycle(BUSY):
            if over.wait(BUSY_S):
                break
            connection.request("GET", path, headers=LOGIN)
            connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


def latency(address: str, runs: int) -> str:
    """Return the median and the 99th percentile of W6's latency over several runs, as text."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "headrace.cli", "bench", of(address)),
            *("--workload=W6", f"--runs={runs}", "--time=5", "--json"),
        ],
        preexec_fn=first_in_line,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    figures = json.loads(done.stdout)["figures"]
    way = {name: [round(run) for run in figures[name]["runs"]] for name in ("way_p50", "way_p99")}
    middle = {name: round(statistics.median(values)) for name, values in way.items()}
    return (
        f"p50 {middle['way_p50']} us of {way['way_p50']}, p99 {middle['way_p99']} us "
        f"of {way['way_p99']}"
    )


# --- Requests ------------------------------------------------------------------------------------


class Times(NamedTuple):
    """The times of a request in milliseconds."""

    median: float
    longest: float
    processor: float  # Processor time of the console, with the samples that it read.
    size: int  # Bytes of an answer.


def measure_requests(address: str, pid: str, runs: int) -> None:
    """Print the times of requests."""
    for path in PATHS:
        show(path, measure(address, pid, path, runs))
    times = {column: measure(address, pid, sorted_by(column), runs) for column in columns(address)}
    worst = sorted(times, key=lambda column: times[column].median, reverse=True)
    print(f"pages sorted by each of {len(times)} columns, the slowest:")
    for column in worst[:5]:
        show(sorted_by(column), times[column])
    longest = max(measured.longest for measured in times.values())
    print(f"{longest:8.1f} ms is the longest of all of them")
    print(f"{max(measured.processor for measured in times.values()):8.1f} ms of processor at most")
    for path in (LIST, f"{LIST}?columns=name,messages,consumers"):
        before = processor(pid)
        first, whole, size = measure_list(address, path)
        used = MS * (processor(pid) - before)
        print(
            f"{first:8.1f} ms to the first byte, {whole:8.1f} ms, processor {used:8.1f} ms,", end=""
        )
        print(f"{size:10} bytes  {path}")


def measure_pages(address: str, pid: str, runs: int) -> None:
    """Print the times of the console's pages, for a user who has logged in."""
    cookie = session(address)
    times = {path: measure(address, pid, path, runs, cookie) for path in PAGES}
    for path, measured in times.items():
        show(path, measured)
    slow = [path for path, measured in times.items() if measured.median > PAGE_MS_MAX]
    print(f"{len(slow)} of {len(PAGES)} pages have a median above {PAGE_MS_MAX:.0f} ms", *slow)


def session(address: str) -> dict[str, str]:
    """Log in by the form; return the header of the session."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Sec-Fetch-Site": "same-origin",
    }
    connection.request("POST", "/login", b"username=guest&password=guest&next=/", headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return {"Cookie": (answer.getheader("Set-Cookie") or "").partition(";")[0]}


def measure_metrics(address: str, pid: str) -> None:
    """Print the times of scrapes."""
    for path in (
        "/metrics",
        "/metrics/per-object",
        "/metrics/detailed?family=queue_coarse_metrics",
    ):
        for _ in range(SCRAPES):
            before = processor(pid)
            first, whole, size = measure_list(address, path)
            used = MS * (processor(pid) - before)
            print(f"{first:8.1f} ms to the first byte, {whole:8.1f} ms, ", end="")
            print(f"processor {used:8.1f} ms,{size:10} bytes  {path}")


def show(path: str, times: Times) -> None:
    """Print the times of a path."""
    print(f"{times.median:8.1f} ms, at most {times.longest:8.1f} ms,", end="")
    print(f" processor {times.processor:7.1f} ms, {times.size:9} bytes  {path}")


def processor(pid: str) -> float:
    """Return the processor time of a process, in seconds."""
    fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sorted_by(column: str) -> str:
    """Return the path of a sorted page."""
    return f"{PAGE}&sort={column}&sort_reverse=true"


def columns(address: str) -> list[str]:
    """Return the columns of a queue; dots separate the names of nested fields."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    connection.request("GET", f"{LIST}?page=1&page_size=1", headers=LOGIN)
    row = json.load(connection.getresponse())["items"][0]
    connection.close()
    return list(leaves(row, ""))


def leaves(row: dict[str, object], before: str) -> Iterator[str]:
    """Yield the paths of the values of an object."""
    for name, value in row.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def measure(
    address: str, pid: str, path: str, runs: int, headers: Mapping[str, str] = LOGIN
) -> Times:
    """Return the times of requests of a path."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    times = []
    size = 0
    before = processor(pid)
    for _ in range(runs):
        began = time.perf_counter()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        times.append(MS * (time.perf_counter() - began))
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body!r:.200}")
        size = len(body)
    connection.close()
    used = MS * (processor(pid) - before) / runs
    return Times(statistics.median(times), max(times), used, size)


def measure_list(address: str, path: str) -> tuple[float, float, int]:
    """Return the times of the first and the last byte in milliseconds, and the number of bytes."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    began = time.perf_counter()
    connection.request("GET", path, headers=LOGIN)
    answer = connection.getresponse()
    size = len(answer.read(1))
    first = MS * (time.perf_counter() - began)
    while piece := answer.read(1 << 20):
        size += len(piece)
    whole = MS * (time.perf_counter() - began)
    connection.close()
    return first, whole, size


def queue_count(address: str) -> int:
    """Return the number of queues that the console lists."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    connection.request("GET", f"{LIST}?page=1&page_size=1&columns=name", headers=LOGIN)
    answer: dict[str, int] = json.load(connection.getresponse())
    connection.close()
    return answer["total_count"]


if __name__ == "__main__":
    main()
