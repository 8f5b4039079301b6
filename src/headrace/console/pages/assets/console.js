"use strict";
// Live parts of a page, the theme, and keys. The page works without all of it.
(() => {
  const EVERY_MS = 5000;
  const RETRY_MS = 2000;
  const BUSY_S = 10; // Until the next refresh after a 429 that names no time.
  // The one place where text becomes a document; the text is a page of this server.
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("headrace", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const read = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  const twoDigits = (number) => String(number).padStart(2, "0");
  // Times are local; the exact one is the title.
  function toLocal(part) {
    for (const element of part.querySelectorAll("time[datetime]")) {
      const time = new Date(element.getAttribute("datetime"));
      if (isNaN(time)) continue;
      const day = [time.getFullYear(), twoDigits(time.getMonth() + 1), twoDigits(time.getDate())].join("-");
      element.textContent = `${day} ${[time.getHours(), time.getMinutes(), time.getSeconds()].map(twoDigits).join(":")}`;
    }
  }
  toLocal(document);
  // A form that is written in, or was, stays as it is while all around it is refreshed.
  const isChanged = (field) => field.type === "checkbox" ? field.checked !== field.defaultChecked : "defaultValue" in field && field.value !== field.defaultValue;
  const isInUse = (form) => form.contains(document.activeElement) || [...form.elements].some(isChanged);
  const beforeNodeMorphed = (old) => !(old.nodeName === "FORM" && isInUse(old));
  // A warning for each reason why the page shows an earlier state.
  const warnings = document.querySelectorAll("[data-stale]");
  const REASONS = { 401: "rights", 403: "rights", 404: "missing", 429: "busy", 503: "broker" };
  const FINAL = ["login", "rights", "missing"]; // No further try succeeds.

  // Return why the refresh failed, "" for success, and the milliseconds until the next one.
  async function refresh() {
    let answer;
    let text;
    try {
      answer = await fetch(location.href, { redirect: "manual" });
      text = await answer.text();
    } catch {
      return ["console", EVERY_MS];
    }
    if (answer.type === "opaqueredirect") return ["login", EVERY_MS]; // The session has ended.
    // A page with status 400 names the wrong parameter of its address, and is refreshed, too.
    if (!answer.ok && answer.status !== 400) {
      const reason = REASONS[answer.status] ?? "error";
      const delay = reason === "busy" ? (Number(answer.headers.get("Retry-After")) || BUSY_S) * 1000 : EVERY_MS;
      for (const status of document.querySelectorAll("[data-status]")) status.textContent = answer.status;
      for (const seconds of document.querySelectorAll("[data-retry-after]")) seconds.textContent = Math.ceil(delay / 1000);
      return [reason, delay];
    }
    const fresh = read(text);
    toLocal(fresh);
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (next) Idiomorph.morph(part, next, { ignoreActiveValue: true, callbacks: { beforeNodeMorphed } });
    }
    document.dispatchEvent(new CustomEvent("headrace:refreshed"));
    return ["", EVERY_MS];
  }

  async function keepFresh() {
    let delay = EVERY_MS;
    if (!document.hidden && document.querySelector("[data-live]")) {
      let reason;
      [reason, delay] = await refresh();
      for (const warning of warnings) warning.hidden = warning.dataset.stale !== reason;
      if (FINAL.includes(reason)) {
        document.dispatchEvent(new CustomEvent("headrace:stopped"));
        return;
      }
    }
    setTimeout(keepFresh, delay);
  }
  setTimeout(keepFresh, EVERY_MS);
  // The login leads back to this page.
  for (const link of document.querySelectorAll("[data-log-in]")) {
    link.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
  }

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
