"use strict";
// Charts: each figure with data-chart loads its numbers, {times, series: [{label, values, unit}]}.
(() => {
  const EVERY_MS = 5000;
  const HEIGHT = 180;
  const LIGHT = ["#0b5f7a", "#a8480c", "#5b3fa0", "#2c6e2f", "#9c1f5e", "#5a5a5a"];
  const DARK = ["#6cc5e3", "#f2a36b", "#b9a4ff", "#8ed492", "#ff9fcb", "#c0c0c0"];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

  // The times of an axis, each on one line: a day, a minute or a second, by the distance of ticks.
  function clock(_chart, ticks, _axis, _space, step) {
    const two = (number) => String(number).padStart(2, "0");
    return ticks.map((tick) => {
      const time = new Date(tick * 1000);
      if (step >= 86400) return two(time.getMonth() + 1) + "-" + two(time.getDate());
      const minute = two(time.getHours()) + ":" + two(time.getMinutes());
      return step >= 60 ? minute : minute + ":" + two(time.getSeconds());
    });
  }

  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
  // Distances of ticks of bytes: powers of two, so that labels are whole.
  const BINARY = Array.from({ length: 51 }, (_, power) => 2 ** power);
  const LASTING = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  // Distances of ticks of seconds, so that labels are whole.
  const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200]
    .concat(Array.from({ length: 20 }, (_, power) => 86400 * 2 ** power));
  // Seconds in the largest unit that they fill.
  const lasting = (value) => {
    const [seconds, unit] = LASTING.find(([seconds]) => value >= seconds) ?? [1, "s"];
    const amount = value / seconds;
    return `${amount.toFixed(Number.isInteger(amount) || seconds === 1 ? 0 : 1)} ${unit}`;
  };
  // A number with its unit; bytes by powers of 1,024.
  const format = (value, unit) => {
    if (unit === "s") return lasting(value);
    if (unit !== "B") return short.format(value) + (unit ?? "");
    const power = value < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(value) / 10));
    const amount = value / 1024 ** power;
    return `${amount.toFixed(Number.isInteger(amount) ? 0 : 1)} ${UNITS[power]}`;
  };

  const isDashed = (index) => index > 2;

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector("[data-plot]");
      this.values = figure.querySelector("[data-values]");
      this.span = "1m";
      this.drawn = null;
      this.shape = "";
      this.keys = [];
      for (const button of figure.querySelectorAll("[data-span]")) {
        button.addEventListener("click", () => this.choose(button.dataset.span));
      }
    }

    choose(span) {
      this.span = span;
      for (const button of this.figure.querySelectorAll("[data-span]")) {
        button.setAttribute("aria-pressed", String(button.dataset.span === span));
      }
      this.load();
    }

    async load() {
      const address = new URL(this.figure.dataset.chart, location.origin);
      address.searchParams.set("span", this.span);
      let numbers;
      try {
        const answer = await fetch(address, { redirect: "manual" });
        if (!answer.ok) return;
        numbers = await answer.json();
      } catch {
        return;
      }
      this.draw(numbers);
    }

    draw(numbers) {
      const data = [numbers.times, ...numbers.series.map((line) => line.values)];
      const shape = numbers.series.map((line) => line.label).join("\n");
      if (this.drawn && this.shape === shape) {
        this.drawn.setData(data);
      } else {
        this.shape = shape;
        this.begin(numbers, data);
      }
      numbers.series.forEach((line, index) => {
        const value = line.values.findLast((each) => each !== null);
        this.keys[index].textContent = `${line.label} ${value === undefined ? "–" : format(value, line.unit)}`;
      });
    }

    // The last numbers, each with the look of its line.
    key(numbers, colors) {
      this.values.replaceChildren();
      this.keys = numbers.series.map((_, index) => {
        const [key, mark, text] = ["span", "i", "span"].map((name) => document.createElement(name));
        mark.style.borderTopColor = colors[index % colors.length];
        if (isDashed(index)) mark.style.borderTopStyle = "dashed";
        key.append(mark, text);
        this.values.append(key, " ");
        return text;
      });
    }

    begin(numbers, data) {
      if (this.drawn) this.drawn.destroy();
      const colors = isDark() ? DARK : LIGHT;
      const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
      const distances = { B: BINARY, s: TIMES };
      const unit = numbers.series[0]?.unit in distances ? numbers.series[0].unit : "";
      this.key(numbers, colors);
      this.drawn = new uPlot({
        padding: [10, 28, 0, 0], // The label of the last tick has its place.
        width: Math.max(200, this.plot.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [
          { ...axis, space: 64, size: 28, values: clock },
          { ...axis, size: 64, incrs: distances[unit], values: (_, splits) => splits.map((value) => format(value, unit)) },
        ],
        series: [
          {},
          ...numbers.series.map((line, index) => ({
            label: line.label, stroke: colors[index % colors.length], width: 1.5,
            dash: isDashed(index) ? [6, 4] : undefined, points: { show: false },
          })),
        ],
      }, data, this.plot);
    }

    fit() {
      if (this.drawn) this.drawn.setSize({ width: Math.max(200, this.plot.clientWidth), height: HEIGHT });
    }

    again() {
      this.shape = "";
      this.load();
    }
  }

  const charts = [...document.querySelectorAll("[data-chart]")].map((figure) => new Chart(figure));
  const load = () => {
    if (!document.hidden) for (const chart of charts) chart.load();
  };
  load();
  const timer = setInterval(load, EVERY_MS);
  document.addEventListener("headrace:stopped", () => clearInterval(timer));
  addEventListener("resize", () => charts.forEach((chart) => chart.fit()));
  document.addEventListener("headrace:theme", () => charts.forEach((chart) => chart.again()));
})();
