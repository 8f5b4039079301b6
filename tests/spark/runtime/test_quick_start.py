# SPDX-License-Identifier: Apache-2.0
"""The cache that lets sessions of Spark start quickly: what is chosen, and what stays."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headrace.server.config.process import COLLECT_RARELY
from headrace.spark.runtime import quick_start
from headrace.spark.runtime.quick_start import ARCHIVE, CACHE, HOME, JAVA_OPTIONS, OPTIONS

PACKAGE = Path(pyspark.__file__).resolve().parent


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unset SPARK_HOME, and use an empty cache."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    for name in (HOME, OPTIONS):  # Set first: what a test sets is gone after it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_workers_import_the_installed_package() -> None:
    assert not quick_start.use()  # No archive yet.
    home = Path(os.environ[HOME])
    assert (home / "jars").resolve() == PACKAGE / "jars"
    (instead_of_zip,) = (home / "python" / "lib").iterdir()  # Of py4j neither.
    assert [path.name for path in instead_of_zip.iterdir()] == ["sitecustomize.py"]
    assert OPTIONS not in os.environ


def test_a_worker_collects_rarely_and_begins_as_its_distribution_has_it(tmp_path: Path) -> None:
    quick_start.use()
    startup_zip = Path(os.environ[HOME], "python", "lib", "pyspark.zip")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.begun = __name__, __file__\n")
    jar = tmp_path / "spark-core_2.13-4.1.0.jar"
    facts = "gc.get_threshold()[0], sys.begun[0], str(sys.path).count('.jar')"
    done = subprocess.run(
        [sys.executable, "-c", f"import gc, sys; print({facts})"],
        env={"PYTHONPATH": f"{startup_zip}{os.pathsep}{jar}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{COLLECT_RARELY[0]} sitecustomize 0\n"
    assert done.stderr == ""


def test_an_archive_is_used_beside_other_options(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_start.use()
    place = Path(os.environ[HOME]).parent
    (place / ARCHIVE).touch()
    monkeypatch.delenv(HOME)
    monkeypatch.setenv(OPTIONS, "-Xmx1g")
    assert quick_start.use()
    assert os.environ[OPTIONS].startswith(f"-Xmx1g -XX:SharedArchiveFile={place / ARCHIVE} ")
    assert quick_start.cache() in place.parents


def test_an_archive_is_of_one_java_and_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_start.use()
    first = os.environ[HOME]
    monkeypatch.delenv(HOME)
    monkeypatch.setenv(JAVA_OPTIONS, "-XX:+UseParallelGC")
    quick_start.use()
    assert os.environ[HOME] != first


def test_a_spark_that_is_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, "/opt/spark")
    assert not quick_start.use()
    assert os.environ[HOME] == "/opt/spark"
    with pytest.raises(quick_start.NotPrepared, match="SPARK_HOME is set"):
        quick_start.prepare()


def test_a_cache_that_cannot_be_written_costs_the_gain_alone(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert not quick_start.use()
    assert HOME not in os.environ
    with pytest.raises(quick_start.NotPrepared, match="cache"):
        quick_start.prepare()


def test_a_session_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(OPTIONS, "-agentlib:nosuch")
    with pytest.raises(quick_start.NotPrepared, match="the session failed"):
        quick_start.prepare()
    (place,) = (tmp_path / "cache").iterdir()
    assert [path.name for path in place.iterdir()] == ["home"]  # Nothing half made is left.


def test_others_cannot_change_what_spark_loads() -> None:
    quick_start.use()
    place = Path(os.environ[HOME]).parent
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
