# SPDX-License-Identifier: Apache-2.0
"""Every command and program of the tutorials runs, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.tutorial import Tutorial, blocks_of, matches
from support.tutorial_environment import needed

PAGES = Path(__file__).parents[2] / "docs" / "tutorials"


def test_every_tutorial_is_run() -> None:
    named = set(re.findall(r"\(([\w-]+\.md)\)", (PAGES / "index.md").read_text()))
    assert named == {path.name for path in PAGES.glob("*.md")} - {"index.md"}
    assert named == {"first-stream.md", "work-queues.md", "celery-django.md", "tests.md"}


def test_work_queues(tmp_path: Path) -> None:
    assert Tutorial(PAGES / "work-queues.md", tmp_path).run() == 5


def test_tests(tmp_path: Path) -> None:
    assert Tutorial(PAGES / "tests.md", tmp_path).run() == 3


@pytest.mark.interop
@pytest.mark.slow
def test_celery_and_django(tmp_path: Path) -> None:
    pytest.importorskip("django")
    assert Tutorial(PAGES / "celery-django.md", tmp_path).run() == 2


@pytest.mark.spark
@pytest.mark.slow
def test_a_first_stream(tmp_path: Path) -> None:
    assert Tutorial(PAGES / "first-stream.md", tmp_path).run() == 4


def test_three_dots_stand_for_anything() -> None:
    assert matches("1 passed in 0.03s\n", "1 passed in ...\n")
    assert not matches("2 passed in 0.03s\n", "1 passed in ...\n")


def test_an_odd_title_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh title='x'\ntrue\n```\n")
    with pytest.raises(AssertionError, match="odd title"):
        blocks_of(page)


SHORT = """
```sh title="install"
python3 -m venv ~/headrace-env
. ~/headrace-env/bin/activate
pip install .
```

```sh title="every terminal"
. ~/headrace-env/bin/activate
mkdir -p ~/place && cd ~/place
```

```python title="program.py"
import click

try:
    import pytest
except ModuleNotFoundError:
    print("only what the page installs")
```

```sh
mkdir inner && cd inner
headrace --version
```

```sh
python ../program.py
```

```text
only what the page installs
```
"""


def test_a_page_has_only_what_it_says(tmp_path: Path) -> None:
    """Packages that it does not install are not there, and a terminal stays where it went."""
    page = tmp_path / "page.md"
    page.write_text(SHORT)
    assert Tutorial(page, tmp_path).run() == 1


@pytest.mark.parametrize(
    ("said", "instead", "error"),
    [
        (". ~/headrace-env/bin/activate\nmkdir", "mkdir", "headrace: command not found"),
        ("import click", "import celery", "No module named 'celery'"),
        ("pip install .", "pip install . no-such-package", "no-such-package is not installed"),
        ("pip install .", "curl example.org", "not a command of an installation"),
    ],
)
def test_a_page_that_leaves_something_out_fails(
    tmp_path: Path, said: str, instead: str, error: str
) -> None:
    page = tmp_path / "page.md"
    assert SHORT.count(said) == 1
    page.write_text(SHORT.replace(said, instead))
    with pytest.raises(AssertionError, match=error):
        Tutorial(page, tmp_path).run()


def test_extras_are_what_a_page_names() -> None:
    names = {one.name.lower() for one in needed(["headrace"])}
    assert "click" in names
    assert not {"aiohttp", "pytest", "pyspark"} & names
    assert "aiohttp" in {one.name.lower() for one in needed(["headrace[console]"])}
