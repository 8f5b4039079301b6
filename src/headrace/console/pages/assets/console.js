"use strict";
// Live parts of a page, the theme, and keys. The page works without all of it.
(() => {
  const EVERY_MS = 5000;
  const RETRY_MS = 2000;
  // The one place where text becomes a document; the text is a page of this server.
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("headrace", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const read = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  const two = (number) => String(number).padStart(2, "0");
  // Times are local; the exact one is the title.
  function toLocal(part) {
    for (const element of part.querySelectorAll("time[datetime]")) {
      const time = new Date(element.getAttribute("datetime"));
      if (isNaN(time)) continue;
      const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join("-");
      element.textContent = `${day} ${[time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":")}`;
    }
  }
  toLocal(document);
  // A form that is written in, or was, stays as it is while all around it is refreshed.
  const isChanged = (field) => field.type === "checkbox" ? field.checked !== field.defaultChecked : "defaultValue" in field && field.value !== field.defaultValue;
  const isInUse = (form) => form.contains(document.activeElement) || [...form.elements].some(isChanged);
  const beforeNodeMorphed = (old) => !(old.nodeName === "FORM" && isInUse(old));
  // One for the console, one for the broker.
  const warnings = document.querySelectorAll("[data-stale]");

  // Return who does not respond: "console", "broker" or "".
  async function refresh() {
    let answer;
    try {
      answer = await fetch(location.href, { redirect: "manual" });
    } catch {
      return "console";
    }
    if (answer.type === "opaqueredirect") {
      location.reload(); // The session has ended: the page leads to the login.
      return "";
    }
    if (!answer.ok) return answer.status === 503 ? "broker" : "console";
    const fresh = read(await answer.text());
    toLocal(fresh);
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (next) Idiomorph.morph(part, next, { ignoreActiveValue: true, callbacks: { beforeNodeMorphed } });
    }
    document.dispatchEvent(new CustomEvent("headrace:refreshed"));
    return "";
  }

  async function keepFresh() {
    if (!document.hidden && document.querySelector("[data-live]")) {
      const silent = await refresh();
      for (const warning of warnings) warning.hidden = warning.dataset.stale !== silent;
    }
    setTimeout(keepFresh, EVERY_MS);
  }
  setTimeout(keepFresh, EVERY_MS);

  // A drawing that is wider than its frame begins with the object that it is about.
  const drawing = document.getElementById("drawing");
  const box = drawing?.querySelector(".first rect");
  if (box) drawing.scrollLeft = Number(box.getAttribute("x")) + Number(box.getAttribute("width")) / 2 - drawing.clientWidth / 2;

  if (document.querySelector("[data-retry]")) setTimeout(() => location.reload(), RETRY_MS);

  // --- Theme ------------------------------------------------------------------------------------
  const root = document.documentElement;
  const remembered = localStorage.getItem("theme");
  if (remembered === "dark" || remembered === "light") root.dataset.theme = remembered;
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const changed = () => document.dispatchEvent(new CustomEvent("headrace:theme"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  const themeSwitch = document.querySelector("[data-theme-switch]");
  if (themeSwitch) {
    const showTheme = () => { themeSwitch.textContent = isDark() ? "Light" : "Dark"; };
    themeSwitch.hidden = false;
    showTheme();
    document.addEventListener("headrace:theme", showTheme);
    themeSwitch.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
      changed();
    });
  }

  // --- The menu is closed on a phone ------------------------------------------------------------
  const menu = document.querySelector("[data-menu]");
  if (menu && matchMedia("(max-width: 760px)").matches) menu.open = false;

  // --- Keys: "/" goes to the search -------------------------------------------------------------
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const search = document.querySelector("[data-search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });
})();
