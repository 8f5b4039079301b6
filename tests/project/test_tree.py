# SPDX-License-Identifier: Apache-2.0
"""The project's own books: what one file says about others is true."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

import headrace
from headrace.cli import COMMANDS, main

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def python_files() -> list[Path]:
    places = [SOURCE, ROOT / "tests", ROOT / "tools", ROOT / "demo"]
    found = [path for place in places for path in place.rglob("*.py")]
    return [*found, ROOT / "setup.py", ROOT / "build_ext.py"]


def to_cythonize() -> tuple[str, ...]:
    sys.path.insert(0, str(ROOT))
    try:
        import build_ext
    finally:
        sys.path.remove(str(ROOT))
    return build_ext.TO_CYTHONIZE


def test_every_python_file_names_its_licence() -> None:
    line = "# SPDX-License-Identifier: Apache-2.0"
    without = [path for path in python_files() if not path.read_text().startswith(line)]
    assert without == []


def test_versions_agree() -> None:
    assert PROJECT["project"]["version"] == headrace.__version__


def test_compiled_modules_exist_and_have_their_types() -> None:
    listed = to_cythonize()
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert (SOURCE / name).exists(), name
        assert (SOURCE / name).with_suffix(".pxd").exists(), name


def test_a_module_with_types_is_compiled() -> None:
    only_inlined = {
        "headrace/protocol/v0_x/handshake.py",
        "headrace/spec/ids.py",
        "headrace/wire/memory.py",
        "headrace/wire/property_bits.py",
    }
    with_types = {
        str(path.with_suffix(".py").relative_to(SOURCE))
        for path in SOURCE.rglob("*.pxd")
        if path.name != "__init__.pxd"
    }
    assert with_types - only_inlined == set(to_cythonize())


def test_every_room_is_in_the_import_contracts() -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    named = {
        module
        for contract in contracts
        for key in ("source_modules", "forbidden_modules", "modules")
        for module in contract.get(key, ())
    }
    rooms = {f"headrace.{path.parent.name}" for path in (SOURCE / "headrace").glob("*/__init__.py")}
    assert rooms == named


def pages_of_the_site(nav: object) -> Iterator[str]:
    """Yield the page of every entry of the site's navigation."""
    match nav:
        case str():
            yield nav
        case list():
            for entry in nav:
                yield from pages_of_the_site(entry)
        case dict():
            yield from pages_of_the_site(list(nav.values()))


def test_every_page_is_in_the_site_and_in_the_list_of_its_part() -> None:
    docs = ROOT / "docs"
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    decisions = {str(page.relative_to(docs)) for page in docs.glob("adr/[0-9]*.md")}
    assert sorted(pages_of_the_site(site["nav"])) == sorted(pages - decisions)
    readme = (ROOT / "README.md").read_text()
    for part in ("tutorials", "guides", "reference", "explanation"):
        assert f"docs/{part}/index.md" in readme
        text = (docs / part / "index.md").read_text()
        for page in (docs / part).rglob("*.md"):
            if page.name != "index.md":
                assert f"({page.relative_to(docs / part)})" in text, page


def test_every_dependency_is_explained() -> None:
    text = (ROOT / "docs" / "explanation" / "dependencies.md").read_text().lower()
    project = PROJECT["project"]
    assert project["dynamic"] == ["dependencies"]
    wanted = re.findall(r'^    "([\w-]+[<>=].*)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert len(wanted) >= 5
    for extra in project["optional-dependencies"].values():
        wanted += extra
    for requirement in wanted:
        name = re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0].lower()
        assert re.search(rf"\b{re.escape(name)}\b", text), name


def test_every_command_has_help() -> None:
    runner = CliRunner()
    assert set(main.list_commands(None)) == set(COMMANDS)  # type: ignore[arg-type]  # Unused.
    for name in COMMANDS:
        done = runner.invoke(main, [name, "--help"])
        assert done.exit_code == 0, done.output
        assert "Usage:" in done.output


# Rooms that may be long: the list of their modules is a table of contents, one for each resource.
BY_RESOURCE = {
    "headrace/console/api",
    "headrace/console/pages/objects",
    "headrace/server/management/resources",
}


def test_a_room_has_no_more_modules_than_a_reader_takes_in() -> None:
    rooms = {path.parent for path in SOURCE.rglob("*.py")}
    full = {
        str(room.relative_to(SOURCE)): count
        for room in rooms
        if (count := sum(1 for path in room.glob("*.py") if path.stem != "__init__")) > 15
    }
    assert full.keys() <= BY_RESOURCE, full
