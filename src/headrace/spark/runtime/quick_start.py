# SPDX-License-Identifier: Apache-2.0
"""A start of Spark in half the time, by a directory that caches the work of each start.

Two steps take most of the time. Spark's Python workers import PySpark and py4j from zips without
bytecode, so each worker compiles them; in a Spark home without these zips they import the installed
packages. A directory with `quick_start_python`, which each worker runs first, replaces PySpark's
zip. Spark's Java machine loads and checks 20,000 classes; an archive of class data has them ready.
`prepare` makes the archive; without it only the workers start faster.

The name of the directory identifies the versions of PySpark and Java, the options of Java, and the
directory's own contents.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

CACHE: Final = "HEADRACE_SPARK_CACHE"
HOME: Final = "SPARK_HOME"
OPTIONS: Final = "SPARK_SUBMIT_OPTS"  # The options of the Java machine of a session.
JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"
ARCHIVE: Final = "classes.jsa"
LINKED: Final = ("bin", "data", "jars", "licenses", "sbin")
IN_PYTHON: Final = "python/lib/pyspark.zip/sitecustomize.py"  # Spark has that zip in PYTHONPATH.
BEGINNING: Final = Path(__file__).with_name("quick_start_python.py")
PREPARE_MAX_S: Final = 600


class NotPrepared(Exception):
    """The archive of class data could not be made; the text has the reason."""


def cache() -> Path:
    """Return the directory of all that is kept: HEADRACE_SPARK_CACHE, or of the user's cache."""
    if named := os.environ.get(CACHE):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "spark"


def use() -> bool:
    """Make the next session of this process start quickly; return True if there is an archive.

    If SPARK_HOME is set, it is used and nothing changes. Without a writable cache the session
    starts at the usual speed.
    """
    if HOME in os.environ:
        return False
    try:
        place = _place()
        home = _home(place)
    except (OSError, RuntimeError):
        return False
    os.environ[HOME] = str(home)
    archive = place / ARCHIVE
    if not archive.is_file():
        return False
    quick = f"-XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} {quick}".strip()
    return True


def prepare() -> tuple[Path, bool]:
    """Make the archive of class data; return its path and True if it was not there before.

    A session of Spark runs for it in a process of its own, for half a minute.

    Raises:
        NotPrepared: SPARK_HOME names another Spark, or the session failed.
    """
    if HOME in os.environ:
        raise NotPrepared(f"{HOME} is set: Spark is that one, not the installed package")
    try:
        place = _place()
        home = _home(place)
        archive = place / ARCHIVE
        if archive.is_file():
            return archive, False
        with tempfile.TemporaryDirectory(prefix=".making-", dir=place) as scratch:
            made = Path(scratch) / ARCHIVE
            _run(home, made, Path(scratch))
            made.replace(archive)
    except (OSError, RuntimeError) as error:
        raise NotPrepared(str(error)) from error
    return archive, True


def _run(home: Path, archive: Path, scratch: Path) -> None:
    options = f"{os.environ.get(OPTIONS, '')} -XX:ArchiveClassesAtExit={archive}".strip()
    python = {"PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **python, HOME: str(home), OPTIONS: options}
    program = Path(__file__).with_name("quick_start_session.py")
    try:
        ended = subprocess.run(  # noqa: S603
            [sys.executable, str(program), str(scratch)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PREPARE_MAX_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotPrepared(f"the session did not end within {PREPARE_MAX_S} s") from None
    if ended.returncode or not archive.is_file():
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        raise NotPrepared(f"the session failed: {lines[-1] if lines else ended.returncode}")


def _place() -> Path:
    """Return the directory of this PySpark, this Java and its options."""
    options = os.environ.get(JAVA_OPTIONS, "")
    identity = "\n".join(
        (str(_package()), version("pyspark"), _java(), options, BEGINNING.read_text("utf-8"))
    )
    return cache() / hashlib.sha256(identity.encode()).hexdigest()[:16]


def _package() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed")
    return Path(spec.origin).resolve().parent


def _java() -> str:
    """Return the path of Java, with what changes when another takes its place."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise RuntimeError("there is no java in the PATH")
    real = Path(java).resolve(strict=True)
    return f"{real} {real.stat().st_mtime_ns}"


def _home(place: Path) -> Path:
    """Return a home of Spark: links to the installed package's parts, without its zips."""
    home, package = place / "home", _package()
    if home.is_dir():
        return home
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".home-", dir=place))
    for name in LINKED:
        if (package / name).exists():
            (made / name).symlink_to(package / name)
    library = made / "python" / "lib"
    library.mkdir(parents=True)
    if find_spec("py4j") is None:
        for py4j in (package / "python" / "lib").glob("py4j-*.zip"):
            (library / py4j.name).symlink_to(py4j)
    (made / IN_PYTHON).parent.mkdir()
    shutil.copyfile(BEGINNING, made / IN_PYTHON)
    try:
        made.rename(home)
    except OSError:  # Another process was first.
        shutil.rmtree(made)
        if not home.is_dir():
            raise
    return home
