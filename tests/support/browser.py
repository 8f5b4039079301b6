# SPDX-License-Identifier: Apache-2.0
"""A browser that notes everything that a page must not do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from selenium.webdriver.remote.webelement import WebElement

ROOT = Path(__file__).parents[2]
AXE = ROOT / "build/interop/npm/node_modules/axe-core/axe.min.js"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en"),
)
PATIENCE_S = 30
# Pages of Chromium itself: the one of a new tab asks for a part of its own.
OWN_PAGES = ("data:", "about:", "chrome:", "chrome-untrusted:")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
# What a page breaks of its policy is noted before anything of it runs.
WATCH = """
window.__breaches = [];
document.addEventListener("securitypolicyviolation",
    (event) => window.__breaches.push(event.violatedDirective + " " + event.blockedURI));
"""


def find_chromium() -> tuple[str, str] | None:
    """Return the paths of the browser and its driver; None without them."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


class Chromium:
    """A browser on one console."""

    def __init__(self, base: str, folder: Path) -> None:
        found = find_chromium()
        assert found is not None
        self.base = base
        self._axe_loader = ""
        self._axe_context = 0
        options = webdriver.ChromeOptions()
        options.binary_location = found[0]
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        logs = {"browser": "ALL", "performance": "ALL"}
        options.set_capability("goog:loggingPrefs", logs)
        self.driver = webdriver.Chrome(options=options, service=Service(found[1]))
        self.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def command(self, name: str, **fields: Any) -> Any:
        """Run a command of Chrome's DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, fields)

    def look(self, width: int, theme: str = "light", height: int = 900) -> None:
        """Set the width of the window, and what the system prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        # Without motion: a colour on its way to another is neither.
        wanted = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.command("Emulation.setEmulatedMedia", features=features)

    def open(self, path: str) -> None:
        """Open a page."""
        self.driver.get(self.base + path)

    def log_in(self, username: str, password: str) -> None:
        """Log in by the form."""
        self.open("/login")
        self.find("#username").send_keys(username)
        self.find("#password").send_keys(password)
        self.press("form button")
        self.wait(lambda: self.path == "/", "the first page")

    @property
    def path(self) -> str:
        """The path of the page that is open."""
        return urlsplit(self.driver.current_url).path

    def find(self, selector: str) -> WebElement:
        """Return the first element that a selector of CSS chooses."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """Return all of them."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, selector: str) -> None:
        """Press a button or a link, as a keyboard does: nothing may cover it."""
        self.find(selector).click()

    def fill(self, **fields: str) -> None:
        """Type into fields of the form, by name."""
        for name, text in fields.items():
            field = self.find(f"[name='{name}']")
            field.clear()
            field.send_keys(text)

    def text(self) -> str:
        """Return the text of the page's main part."""
        return self.find("main").text

    def run(self, script: str) -> Any:
        """Run a script in the page; return its value."""
        return self.driver.execute_script(script)

    def wait(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until something is so."""
        moved_on = [StaleElementReferenceException]  # The page was replaced while it was read.
        wait = WebDriverWait(self.driver, PATIENCE_S, 0.05, ignored_exceptions=moved_on)
        ready = "return document.readyState"
        wait.until(lambda _: is_so() and self.run(ready) == "complete", what)

    # --- What a page must not do -----------------------------------------------------------------

    def check(self) -> None:
        """Fail if the pages since the last check did what none may do."""
        assert self.run("return window.__breaches") == []
        told = self.driver.get_log("browser")
        assert [one["message"] for one in told if one["level"] != "DEBUG"] == []
        foreign = self.foreign()
        assert foreign == [], foreign

    def foreign(self) -> list[str]:
        """Return the addresses beside the console that were asked for."""
        found = []
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"]
                if not address.startswith((self.base, *OWN_PAGES)):
                    found.append(address)
        return found

    def axe(self) -> list[str]:
        """Return what axe finds against WCAG AA on the page."""
        frame = self.command("Page.getFrameTree")["frameTree"]["frame"]
        if frame["loaderId"] != self._axe_loader:  # Another document than at the last call.
            world = self.command("Page.createIsolatedWorld", frameId=frame["id"], worldName="axe")
            self._axe_context = world["executionContextId"]
            source = AXE.read_text()
            self.command("Runtime.evaluate", expression=source, contextId=self._axe_context)
            self._axe_loader = frame["loaderId"]
        options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
        answer = self.command(
            "Runtime.evaluate",
            expression=f"axe.run(document, {json.dumps(options)}).then((it) => it.violations)",
            contextId=self._axe_context,
            awaitPromise=True,
            returnByValue=True,
        )
        return [
            f"{one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
            for one in answer["result"]["value"]
            for node in one["nodes"]
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(
            self.run(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )
