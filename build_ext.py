# SPDX-License-Identifier: Apache-2.0
"""What is compiled, and how.

As a script it keeps a compiled copy of `src` in `<build>/compiled`, redoing only what changed:

    python build_ext.py [<build>]          # default: build

Environment: `HEADRACE_PURE=1` compiles nothing; `HEADRACE_SANITIZE=address,undefined` compiles
with those sanitizers (the copy then goes to `<build>/sanitized`).
"""

from __future__ import annotations

import fcntl
import os
import py_compile
import shlex
import shutil
import sys
import sysconfig
import threading
import time
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The hot path. Each module is plain Python with a sibling .pxd that gives its C types.
TO_CYTHONIZE: tuple[str, ...] = (
    "headrace/wire/table.py",
    "headrace/wire/properties.py",
    "headrace/wire/ranges.py",
    "headrace/wire/types_0_10.py",
    "headrace/model/message.py",
    "headrace/model/tallies.py",
    "headrace/model/ports.py",
    "headrace/model/queue/ring.py",
    "headrace/model/counters.py",
    "headrace/model/queue/ready_list.py",
    "headrace/model/queue/destination.py",
    "headrace/model/queue/delivery_mark.py",
    "headrace/model/queue/queue.py",
    "headrace/model/queue/browsing.py",
    "headrace/model/queue/dead_letter_sender.py",
    "headrace/model/queue/expiry.py",
    "headrace/model/queue/recovered.py",
    "headrace/model/queue/overflow.py",
    "headrace/model/queue_kinds/content_lanes.py",
    "headrace/model/queue_kinds/header_reader.py",
    "headrace/model/queue_kinds/ordered.py",
    "headrace/model/queue_kinds/sorted.py",
    "headrace/model/queue_kinds/fair_share.py",
    "headrace/model/queue_kinds/group_list.py",
    "headrace/model/queue_kinds/inspecting.py",
    "headrace/model/queue_kinds/last_value.py",
    "headrace/model/queue_kinds/grouped.py",
    "headrace/model/stream/log.py",
    "headrace/model/stream/stream.py",
    "headrace/model/lease/log.py",
    "headrace/model/lease/lease.py",
    "headrace/model/operations/queue_view.py",
    "headrace/model/transaction/publishes.py",
    "headrace/model/transaction/transaction.py",
    "headrace/server/management/sampling/queue_row.py",
    "headrace/protocol/output.py",
    "headrace/protocol/endpoint.py",
    "headrace/protocol/v0_x/channel.py",
    "headrace/protocol/v0_10/session/completed_ids.py",
    "headrace/protocol/v0_10/assembly.py",
    "headrace/protocol/v0_10/session/port.py",
    "headrace/protocol/v0_10/session_connection.py",
    "headrace/protocol/v0_10/session/sent.py",
    "headrace/protocol/v0_10/session/received.py",
    "headrace/protocol/v0_10/session/session.py",
    "headrace/protocol/v0_10/connection/attachments.py",
    "headrace/protocol/v0_10/connection/frames.py",
    "headrace/protocol/v0_10/connection/connection.py",
    "headrace/protocol/v0_x/frames.py",
    "headrace/protocol/v0_x/upcalls.py",
    "headrace/protocol/v0_x/content_frames.py",
    "headrace/protocol/v0_x/answers.py",
    "headrace/protocol/v0_x/connection.py",
    "headrace/gateway/conversion/neutral_values.py",
    "headrace/gateway/conversion/neutral.py",
    "headrace/gateway/conversion/neutral_basic.py",
    "headrace/gateway/conversion/neutral_transfer.py",
    "headrace/gateway/conversion/convert.py",
    "headrace/gateway/messages/pending_confirms.py",
    "headrace/gateway/messages/route.py",
    "headrace/gateway/messages/distributor.py",
    "headrace/gateway/messages/unsettled.py",
    "headrace/gateway/v0_x/peer.py",
    "headrace/gateway/messages/stream_headers.py",
    "headrace/gateway/v0_x/channel/content_writer.py",
    "headrace/gateway/v0_x/channel/deliveries.py",
    "headrace/gateway/v0_x/channel/consumer.py",
    "headrace/gateway/v0_x/channel/channel.py",
    "headrace/gateway/v0_x/connection/routes.py",
    "headrace/gateway/v0_x/connection/slow_path.py",
    "headrace/gateway/v0_x/connection/publish_receiver.py",
    "headrace/gateway/v0_x/connection/owner.py",
    "headrace/gateway/v0_x/connection/connection.py",
    "headrace/gateway/v0_10/session/transfer_header.py",
    "headrace/gateway/v0_10/session/context.py",
    "headrace/gateway/v0_10/session/deliveries.py",
    "headrace/gateway/v0_10/session/subscription.py",
    "headrace/gateway/v0_10/session/completion.py",
    "headrace/gateway/v0_10/session/transfer.py",
    "headrace/gateway/v0_10/session/transfer_receiver.py",
    "headrace/gateway/v0_10/session/session.py",
    "headrace/gateway/v0_10/connection/connection.py",
    "headrace/server/net/watched_socket.py",
    "headrace/server/net/transport.py",
    "headrace/server/net/hot_sockets.py",
    "headrace/server/net/tls_transport.py",
    "headrace/server/cluster_relay/ends.py",
    "headrace/server/relay/link.py",
    "headrace/server/relay/output.py",
    "headrace/server/relay/pump.py",
    "headrace/store/segment/record.py",
    "headrace/store/segment/segment.py",
    "headrace/store/segment/span.py",
    "headrace/store/offload/record_groups.py",
    "headrace/store/segment/read_ahead.py",
    "headrace/store/journal/scratch.py",
    "headrace/store/journal/delivery_counts.py",
    "headrace/store/segment/group.py",
    "headrace/store/journal/log.py",
    "headrace/store/journal/settlements.py",
    "headrace/store/journal/page_in.py",
    "headrace/store/journal/journal.py",
    "headrace/store/journal/rows.py",
    "headrace/store/journal/recovery.py",
    "headrace/store/stream/files.py",
    "headrace/store/stream/scan.py",
    "headrace/store/stream/index.py",
    "headrace/store/stream/reader.py",
    "headrace/store/stream/log.py",
    "headrace/client/stream/blocks.py",
    "headrace/client/bulk/encode.py",
    "headrace/client/channel/outgoing.py",
    "headrace/client/channel/arrivals.py",
    "headrace/store/stream/lease_log.py",
    "headrace/bench/load/meter.py",
    "headrace/bench/load/meter_0_10.py",
    "headrace/columns/read/header_columns.py",
)

# Of these, what takes nearly all instructions of a plain message (docs/explanation/build.md), and
# the loops of the client and of the load generator. The compiler takes less time for the others.
HOT: tuple[str, ...] = (
    "headrace/model/message.py",
    "headrace/model/queue/ring.py",
    "headrace/model/queue/ready_list.py",
    "headrace/model/queue/destination.py",
    "headrace/model/queue/queue.py",
    "headrace/protocol/output.py",
    "headrace/protocol/v0_10/session/sent.py",
    "headrace/protocol/v0_10/session/received.py",
    "headrace/protocol/v0_10/connection/frames.py",
    "headrace/protocol/v0_x/content_frames.py",
    "headrace/protocol/v0_x/connection.py",
    "headrace/gateway/messages/distributor.py",
    "headrace/gateway/messages/unsettled.py",
    "headrace/gateway/v0_x/channel/content_writer.py",
    "headrace/gateway/v0_x/channel/deliveries.py",
    "headrace/gateway/v0_x/channel/consumer.py",
    "headrace/gateway/v0_x/channel/channel.py",
    "headrace/gateway/v0_x/connection/routes.py",
    "headrace/gateway/v0_x/connection/publish_receiver.py",
    "headrace/gateway/v0_x/connection/owner.py",
    "headrace/gateway/v0_10/session/deliveries.py",
    "headrace/gateway/v0_10/session/subscription.py",
    "headrace/gateway/v0_10/session/transfer_receiver.py",
    "headrace/gateway/v0_10/connection/connection.py",
    "headrace/server/net/transport.py",
    "headrace/server/net/hot_sockets.py",
    "headrace/store/segment/record.py",
    "headrace/store/segment/segment.py",
    "headrace/store/journal/settlements.py",
    "headrace/store/journal/journal.py",
    "headrace/client/stream/blocks.py",
    "headrace/client/bulk/encode.py",
    "headrace/client/channel/outgoing.py",
    "headrace/client/channel/arrivals.py",
    "headrace/bench/load/meter.py",
    "headrace/bench/load/meter_0_10.py",
    "headrace/columns/read/header_columns.py",
)

DIRECTIVES = {
    "language_level": "3",
    "boundscheck": False,
    "wraparound": False,
    "cdivision": False,
    "initializedcheck": False,
    "annotation_typing": False,
    "auto_pickle": False,
    "show_performance_hints": False,
}

# Class decorators that Cython loses when they stand in a .pxd beside a .py. Without these, garbage
# collection walks every ready message, over and over.
MODULE_DIRECTIVES: dict[str, dict[str, object]] = {
    "headrace/model/message.py": {"no_gc": True, "freelist": 1024},
}

# Cython's own functions, once for all modules instead of once in each: a third less to compile.
SHARED = "headrace._cython"

# Warnings about generated C that say nothing about the source.
QUIET = ("-Wno-sign-compare", "-Wno-unused", "-Wno-maybe-uninitialized", "-Wno-extra")

# Without passes that take a fifth of the time.
HOT_FLAGS = (
    "-O2",
    *("-fno-ipa-cp", "-fno-ipa-icf", "-fno-ipa-sra", "-fno-ipa-vrp"),
    *("-fno-gcse", "-fno-tree-pre", "-fno-tree-tail-merge", "-fno-code-hoisting"),
)
OTHER_FLAGS = ("-Og",)

SOURCE = Path("src")
TELL_EVERY_S = 10.0


def is_pure() -> bool:
    return os.environ.get("HEADRACE_PURE", "") not in ("", "0")


def sanitizers() -> str:
    return os.environ.get("HEADRACE_SANITIZE", "")


def compiler_flags(is_hot: bool) -> tuple[list[str], list[str]]:
    """Flags to compile and to link with."""
    # Python's own flags ask for debug symbols, which are nine tenths of a module.
    flags = ["-g0", "-fno-strict-aliasing", "-fvisibility=hidden", *QUIET]
    flags = [*(HOT_FLAGS if is_hot else OTHER_FLAGS), *flags]
    if not sanitizers():
        return flags, []
    checks = [f"-fsanitize={sanitizers()}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    # Not optimized: it compiles in a quarter of the time, and it is what is checked that counts.
    return ["-O0", "-g1", "-fno-strict-aliasing", *QUIET, *checks], checks


def check_compiler() -> None:
    """Say what is missing before anything is translated. Raises SystemExit."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    missing = []
    if not shutil.which(compiler):
        missing.append(f"the C compiler {compiler!r} (on Debian: apt-get install gcc)")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        missing.append(
            f"the C headers of Python, {header} (on Debian: apt-get install python3-dev)"
        )
    if missing:
        raise SystemExit(
            f"headrace: to compile the hot path takes {' and '.join(missing)}. "
            "HEADRACE_PURE=1 installs without compiling; the broker is then many times slower."
        )


def modules() -> list[Extension]:
    """The extension modules of this tree, not yet translated; none when pure.

    A tree with the client only has the client's rooms only.
    """
    if is_pure():
        return []
    present = [path for path in TO_CYTHONIZE if (SOURCE / path).parent.exists()]
    missing = [path for path in present if not (SOURCE / path).exists()]
    missing += [path for path in HOT if path not in TO_CYTHONIZE]
    if missing:
        raise SystemExit(
            f"TO_CYTHONIZE and HOT in build_ext.py name files that are not there: {missing}"
        )
    made = [_extension(_name(path), str(SOURCE / path), path in HOT) for path in present]
    return [*made, _extension(SHARED, "_cython.c")]  # Its source is made by Cython.


@contextmanager
def progress(say: Callable[[float], str], wanted: bool) -> Iterator[None]:
    """Print a line of what ``say`` makes of the seconds so far, every 10 seconds, if wanted."""
    begun, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(TELL_EVERY_S):
            sys.stdout.write(say(time.monotonic() - begun) + "\n")
            sys.stdout.flush()

    thread = threading.Thread(target=tell, daemon=True)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if wanted:
            thread.join()


class BuildExt(build_ext):  # type: ignore[misc]  # setuptools has no types.
    """Translates and compiles all modules with as many processes as there are cores."""

    extensions: list[Extension]
    parallel: int | None
    c_dir = Path("build/c")
    tells = False  # Installers want no output of a build.
    compiled = 0

    def finalize_options(self) -> None:
        """Use every core, unless the command line says how many."""
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count() or 1

    def run(self) -> None:
        """Check the compiler, then translate, then compile."""
        if self.extensions:
            check_compiler()
            begun = time.time()
            with progress(
                lambda s: f"translated {_written(self.c_dir, begun)} modules to C, {s:.0f} s",
                self.tells,
            ):
                translate(self.extensions, self.c_dir, self.parallel or 0)
            # The longest first, so that no core waits for them at the end.
            self.extensions.sort(key=lambda module: -Path(module.sources[0]).stat().st_size)
        total = len(self.extensions)
        with progress(
            lambda s: f"compiled {self.compiled} of {total} modules, {s:.0f} s", self.tells
        ):
            super().run()

    def build_extension(self, module: Extension) -> None:
        """Compile a module, and count it."""
        super().build_extension(module)
        self.compiled += 1


def _written(c_dir: Path, since: float) -> int:
    """Return how many C files were written since a time."""
    return sum(path.stat().st_mtime >= since for path in c_dir.rglob("*.c"))


def translate(made: list[Extension], c_dir: Path, jobs: int) -> None:
    """Translate modules to C in ``c_dir`` by ``jobs`` processes; it becomes their source.

    No job: in this process.
    """
    from Cython.Compiler.Options import get_directive_defaults

    # Else they cannot be given below.
    get_directive_defaults().update(no_gc=False, freelist=0)  # type: ignore[no-untyped-call]
    special = {_name(path): directives for path, directives in MODULE_DIRECTIVES.items()}
    done = _cythonized([module for module in made if module.name not in special], {}, c_dir, jobs)
    for name, directives in special.items():
        done += _cythonized(
            [module for module in made if module.name == name], directives, c_dir, 0
        )
    sources = {module.name: module.sources for module in done}
    for module in made:  # The same objects, for setuptools has put things of its own into them.
        module.sources = sources[module.name]


def _name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _extension(name: str, source: str, is_hot: bool = False) -> Extension:
    compile_flags, link_flags = compiler_flags(is_hot)
    return Extension(name, [source], extra_compile_args=compile_flags, extra_link_args=link_flags)


def _cythonized(
    made: list[Extension], directives: dict[str, object], c_dir: Path, jobs: int
) -> list[Extension]:
    from Cython.Build import cythonize

    c_dir.mkdir(parents=True, exist_ok=True)
    done: list[Extension] = cythonize(  # type: ignore[no-untyped-call]  # Cython has no types.
        made,
        nthreads=jobs,
        compiler_directives={**DIRECTIVES, **directives},
        shared_utility_qualified_name=SHARED,
        build_dir=str(c_dir),
        include_path=[str(SOURCE)],
        quiet=True,
    )
    return done


def mirror(target: Path) -> None:
    """Make the Python files under `target` those of `src`, and drop extensions without a source.

    Their bytecode is there too: where Python may write none, as in many images of containers, each
    command would else begin by compiling all that it imports, which takes longer than its work.
    """
    suffix = EXTENSION_SUFFIXES[0]
    built = {module.name.replace(".", "/") + suffix for module in modules()}
    wanted = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    for path in list(target.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        inside = path.relative_to(target)
        if inside not in wanted and str(inside) not in built:
            path.unlink()
    for inside in wanted:
        source, copy = SOURCE / inside, target / inside
        current = copy.exists() and copy.stat().st_mtime_ns == source.stat().st_mtime_ns
        if not current:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
        imported = copy.suffix == ".py" and str(inside).removesuffix(".py") + suffix not in built
        if imported and not (current and Path(cache_from_source(str(copy))).exists()):
            py_compile.compile(str(copy), doraise=True)


def build(root: Path) -> Path:
    """Bring the compiled copy under `root` up to date and return where it is."""
    kind = "sanitized" if sanitizers() else "compiled"
    target = root / kind
    target.mkdir(parents=True, exist_ok=True)
    with (root / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two builds at once would disturb each other.
        made = modules()
        if made:
            distribution = Distribution({"name": "headrace", "ext_modules": made})
            command = BuildExt(distribution)
            command.c_dir = root / "c"
            command.tells = True
            command.build_lib = str(target)
            command.build_temp = str(root / f"objects-{kind}")
            command.ensure_finalized()
            command.run()
        mirror(target)
    return target


if __name__ == "__main__":
    place = build(Path(sys.argv[1] if len(sys.argv) > 1 else "build"))
    sys.stdout.write(f"{place}: {len(modules())} compiled modules\n")
