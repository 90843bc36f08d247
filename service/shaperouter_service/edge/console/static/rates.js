// Live rates: a number and its course over two minutes.

import { fill, h, mark, say } from "./dom.js";
import { count, percent } from "./format.js";

// Seconds that the curves show, and seconds over which a rate is averaged.
const SHOWN = 120;
const AVERAGED = 3;

const RATES = [
  ["generated", "Tokens generated", "tokens/s", (totals) => totals.generated_tokens],
  ["prompt", "Tokens read", "tokens/s", (totals) => totals.prompt_tokens],
  ["requests", "Requests ended", "/s", (totals) => totals.ended],
  ["stalls", "Stalls", "/s", (_, sums) => sums.stalls],
  ["padding", "Padding computed", "tokens/s", (_, sums) => sums.padding],
  ["refusals", "Calls refused", "/s", (totals) => add(Object.values(totals.refusals))],
];

/** Shows the rates of a store. */
export class Rates {
  constructor(element, store) {
    this.store = store;
    this.samples = [];
    // The last counts of each worker: those of a process that was replaced begin at 0 again.
    this.last = new Map();
    this.sums = { stalls: 0, padding: 0 };
    this.views = RATES.map(([name, title, unit]) => {
      const value = h("b", {}, "–");
      const canvas = h("canvas", { width: 240, height: 48, "aria-hidden": "true" });
      const box = h("div.rate", { "data-rate": name }, h("h2", {}, title), h("p", {}, value, " ", unit), canvas);
      return { name, value, canvas, box };
    });
    this.share = h("b", {}, "–");
    this.load = h("b", {}, "–");
    fill(
      element,
      ...this.views.map((view) => view.box),
      h("div.rate", {}, h("h2", {}, "Share of padding"), h("p", {}, this.share), h("p.small", {}, "of all device time")),
      h("div.rate", {}, h("h2", {}, "Requests now"), h("p", {}, this.load), h("p.small", {}, "running, waiting")),
    );
    setInterval(() => this.sample(), 1000);
  }

  sample() {
    const { store } = this;
    if (store.state !== "live") return;
    this.add();
    const now = performance.now() / 1000;
    this.samples.push([now, ...RATES.map(([, , , read]) => read(store.totals, this.sums))]);
    while (now - this.samples[0][0] > SHOWN) this.samples.shift();
    if (document.hidden) return;
    this.views.forEach((view, index) => {
      const rates = this.rates(index + 1);
      say(view.value, count(rates.at(-1) ?? 0));
      draw(view.canvas, rates);
    });
    const device = add([...store.graphs.values()].map((row) => row.device_seconds ?? 0));
    const padded = add([...store.graphs.values()].map((row) => row.padded_seconds ?? 0));
    say(this.share, device ? percent(padded / device) : "–");
    say(this.load, `${count(store.totals.running)}, ${count(store.totals.waiting)}`);
    mark(this.views.at(-1).box, "title", Object.entries(store.totals.refusals).map((pair) => pair.join(": ")).join("\n"));
  }

  /** Adds what the workers' own counts have grown by. */
  add() {
    const stalls = new Map();
    for (const row of this.store.graphs.values()) {
      stalls.set(row.worker, (stalls.get(row.worker) ?? 0) + (row.stalls ?? 0));
    }
    const now = new Map();
    for (const worker of this.store.workers.values()) {
      const counts = { incarnation: worker.incarnation, stalls: stalls.get(worker.name) ?? 0, padding: worker.padding_tokens };
      const before = this.last.get(worker.name);
      const same = before?.incarnation === counts.incarnation;
      // The first counts of a page are no rate.
      if (same || this.last.size) {
        for (const name of ["stalls", "padding"]) this.sums[name] += Math.max(0, counts[name] - (same ? before[name] : 0));
      }
      now.set(worker.name, counts);
    }
    this.last = now;
  }

  rates(column) {
    return this.samples.map((sample, index) => {
      const before = this.samples[Math.max(0, index - AVERAGED)];
      const passed = sample[0] - before[0];
      return passed ? Math.max(0, (sample[column] - before[column]) / passed) : 0;
    });
  }
}

function add(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

function draw(canvas, values) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const style = getComputedStyle(canvas);
  const top = Math.max(...values, 1e-9);
  context.clearRect(0, 0, width, height);
  context.beginPath();
  values.forEach((value, index) => {
    const x = width - (values.length - 1 - index) * (width / SHOWN);
    context.lineTo(x, height - 2 - (height - 6) * (value / top));
  });
  context.strokeStyle = style.color;
  context.lineWidth = 2;
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(width - (values.length - 1) * (width / SHOWN), height);
  context.globalAlpha = 0.12;
  context.fillStyle = style.color;
  context.fill();
  context.globalAlpha = 1;
}
