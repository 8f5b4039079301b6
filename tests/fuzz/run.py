# SPDX-License-Identifier: Apache-2.0
"""The fuzzer: seeded mutations of real streams against codecs, machines and a broker in memory.

    python tests/fuzz/run.py [--seconds 120] [--seed 1] [--sanitize]   # `make fuzz`
    python tests/fuzz/run.py --count 500 --seed 1 --digests            # one digest per input
    python tests/fuzz/run.py --input FILE                              # replay a finding

With `--sanitize` the hot modules are compiled with AddressSanitizer and
UndefinedBehaviorSanitizer first, and it is that build which is fuzzed.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"
FINDINGS = ROOT / "build" / "fuzz"
SANITIZERS = "address,undefined"


def corpus() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))]


def sanitized_environment() -> dict[str, str]:
    """Build with sanitizers and return the environment in which that build runs."""
    environment = {**os.environ, "HEADRACE_SANITIZE": SANITIZERS}
    build = [sys.executable, "build_ext.py"]
    subprocess.run(build, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "build" / "sanitized"),
        "PYTHONMALLOC": "malloc",  # Each object in a block of its own, fenced by the sanitizer.
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def inputs(seed: int) -> Iterator[bytes]:
    """The corpus as it is, then what the mutator makes of it, and sessions of its own."""
    from fuzz_0_10 import CORPUS as CORPUS_0_10
    from fuzz_0_10 import Mutator010
    from fuzz_mutate import Mutator

    real = corpus()
    bent, sessions = Mutator(real, seed).inputs(), Mutator(real, seed).sessions()
    made = itertools.chain.from_iterable(
        zip(bent, sessions, Mutator010(seed).inputs(), strict=True)
    )
    return itertools.chain(real, CORPUS_0_10, made)


def fuzz(seconds: float, count: int, seed: int, digests: bool) -> int:
    from fuzz_0_10 import run_any
    from fuzz_target import Finding

    import headrace.wire.table

    FINDINGS.mkdir(parents=True, exist_ok=True)
    current = FINDINGS / f"current-{os.getpid()}.bin"  # Survives an abort by a sanitizer.
    started = time.monotonic()
    done = octets = 0
    told = started
    for data in itertools.islice(inputs(seed), count or None):
        current.write_bytes(data)
        try:
            digest = run_any(data)
        except Exception as error:
            finding = FINDINGS / f"finding-{seed}-{done}.bin"
            current.rename(finding)
            sys.stderr.write(f"input {done} of seed {seed}: {type(error).__name__}: {error}\n")
            sys.stderr.write(f"replay: python tests/fuzz/run.py --input {finding}\n")
            if isinstance(error, Finding):
                return 1
            raise
        if digests:
            sys.stdout.write(digest + "\n")
        done += 1
        octets += len(data)
        now = time.monotonic()
        if not digests and now - told > 10:
            told = now
            sys.stderr.write(f"{now - started:6.0f} s, {done} inputs\n")
        if now - started > seconds:
            break
    current.unlink()
    if not digests:
        build = Path(headrace.wire.table.__file__)
        kind = "uncompiled" if build.suffix == ".py" else f"compiled ({build.parents[2].name})"
        sys.stdout.write(
            f"{done} inputs, {octets} octets in {time.monotonic() - started:.0f} s, "
            f"seed {seed}, {kind}: no finding\n"
        )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz codecs, machines and broker.")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", 120)))
    parser.add_argument("--count", type=int, default=0, help="stop after so many inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--digests", action="store_true", help="print a digest per input")
    parser.add_argument("--sanitize", action="store_true", help="build and run with sanitizers")
    parser.add_argument("--read-too-far", action="store_true", help="do it: sanitizers must see it")
    parser.add_argument("--input", type=Path, help="run one file and say what happens")
    options = parser.parse_args()
    if options.sanitize:
        arguments = [argument for argument in sys.argv[1:] if argument != "--sanitize"]
        command = [sys.executable, __file__, *arguments]
        return subprocess.run(command, env=sanitized_environment(), check=False).returncode
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    logging.disable(logging.WARNING)  # What clients do wrong is what this is about.
    if options.read_too_far:
        from headrace.wire.table import check_utf8

        check_utf8(bytes(64), 0, 1 << 16)  # The caller lies about the end.
        return 0
    if options.input:
        from fuzz_0_10 import run_any

        sys.stdout.write(run_any(options.input.read_bytes()) + "\n")
        return 0
    return fuzz(options.seconds, options.count, options.seed, options.digests)


if __name__ == "__main__":
    raise SystemExit(main())
