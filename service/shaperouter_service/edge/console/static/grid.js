// One lattice of the page: a table of cells, with the last routes above it.

import { fill, h, mark, svg } from "./dom.js";
import { plural, seconds } from "./format.js";

const HELP = {
  encode: "reads a source",
  prefill: "reads a prompt",
  score: "reads a prompt and scores it",
  decode: "generates tokens",
  align: "finds the times of words",
  call: "computes a call",
};
// Pixels of the mark of a graph that is ready: unused, and used most.
const SMALLEST = 7;
const LARGEST = 20;

/** A signature in a text, as the service writes it. */
function signatureOf({ model, kind, rows, length, beams }) {
  return `${model} ${kind} ${rows}x${length}${beams > 1 ? ` beams ${beams}` : ""}`;
}

/** One lattice: a table of cells, moved in by arrow keys. */
export class Grid {
  constructor(panel, model, lattice) {
    this.panel = panel;
    this.model = model;
    this.key = `${lattice.model} ${lattice.kind} ${lattice.beams}`;
    this.cells = new Map();
    this.lengths = lattice.lengths.map(([length]) => length).sort(byNumbers);
    this.rows = [...new Set(lattice.lengths.flatMap(([, rows]) => rows))].sort((a, b) => b - a);
    const allowed = new Map(lattice.lengths);
    const name = `${lattice.kind}${lattice.beams > 1 ? `, beams ${lattice.beams}` : ""}`;
    const body = this.rows.map((rows) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, rows),
        ...this.lengths.map((length) => {
          if (!allowed.get(length).includes(rows)) return h("td.none", { "aria-hidden": "true" });
          const signature = signatureOf({ model: lattice.model, kind: lattice.kind, rows, length, beams: lattice.beams });
          const cell = h("td", { tabindex: "-1", "data-signature": signature }, h("i"));
          this.cells.set(signature, cell);
          return cell;
        }),
      ),
    );
    const table = h(
      "table",
      { role: "grid", "aria-label": `${lattice.model} ${name}: rows by length` },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span.hidden", {}, "rows")), ...this.lengths.map((length) => h("th", { scope: "col" }, length)))),
      h("tbody", {}, ...body),
    );
    this.lines = svg("svg", { "aria-hidden": "true" });
    this.element = h(
      "figure.lattice",
      {},
      h("figcaption", {}, h("b", {}, name), ` ${HELP[lattice.kind] ?? ""}`, lattice.model === model.name ? "" : ` (${lattice.model})`),
      h("div.scroll", {}, h("div.board", {}, table, this.lines)),
      h("p.axis", {}, lattice.kind === "call" ? "rows ↑   sizes →" : "rows ↑   length →"),
    );
    this.cells.values().next().value?.setAttribute("tabindex", "0");
    table.addEventListener("pointerover", ({ target }) => this.at(target, (signature) => this.panel.select(signature)));
    table.addEventListener("focusin", ({ target }) => this.at(target, (signature) => this.focused(signature)));
    table.addEventListener("click", (event) => this.at(event.target, (signature) => this.clicked(signature, event)));
    table.addEventListener("keydown", (event) => this.pressed(event));
  }

  at(target, act) {
    const signature = target.closest("td[data-signature]")?.dataset.signature;
    if (signature) act(signature);
  }

  focused(signature) {
    for (const cell of this.cells.values()) mark(cell, "tabindex", cell.dataset.signature === signature ? 0 : -1);
    this.panel.select(signature);
  }

  /** Warms the graph. A finger cannot point before it touches, so its touch only selects. */
  clicked(signature, event) {
    this.cells.get(signature).focus();
    if (event.pointerType === "touch") this.panel.select(signature);
    else this.ask(signature);
  }

  ask(signature) {
    const { state } = this.panel.store.sum(signature);
    if (state !== "cold" && state !== "failed") return;
    if (this.panel.store.client.operator) this.panel.warm(signature, false);
    else this.panel.notify("Only operators can warm graphs.", true);
  }

  pressed(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const { signature } = event.target.dataset;
    if (!signature) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.ask(signature);
    } else if (step) {
      event.preventDefault();
      let row = event.target.parentElement.sectionRowIndex;
      let column = event.target.cellIndex;
      const lines = event.target.closest("tbody").rows;
      do {
        row += step[0];
        column += step[1];
      } while (lines[row]?.cells[column]?.className === "none");
      const next = lines[row]?.cells[column];
      if (next?.dataset.signature) next.focus();
    }
  }

  /** Colours cells by state, and sizes their marks by use. */
  paint(signatures) {
    const { store } = this.panel;
    const most = Math.max(1e-9, ...[...this.cells.keys()].map((each) => store.sum(each).device_seconds));
    const rescaled = most > (this.most ?? 0) * 1.2 || most < (this.most ?? 0);
    if (rescaled) this.most = most;
    for (const signature of rescaled ? this.cells.keys() : signatures) {
      const cell = this.cells.get(signature);
      if (!cell) continue;
      const total = store.sum(signature);
      const share = Math.sqrt(Math.min(1, total.device_seconds / this.most));
      mark(cell, "data-state", total.state);
      mark(cell, "data-stalled", total.stalls > 0);
      mark(cell, "data-workers", total.ready > 1 ? total.ready : "");
      cell.firstChild.style.setProperty("--size", `${Math.round(SMALLEST + (LARGEST - SMALLEST) * share)}px`);
      const use = total.calls ? `, ${plural(total.calls, "call")}, ${seconds(total.device_seconds)}` : "";
      const stalls = total.stalls ? `, ${plural(total.stalls, "stall")}` : "";
      mark(cell, "aria-label", `${shape(signature)} ${total.state}${use}${stalls}`);
    }
  }

  route(routes) {
    const lines = [];
    for (const { asked, served, requests } of routes) {
      const [from, to] = [this.cells.get(asked), this.cells.get(served)];
      if (!from || !to) continue;
      const [x, y] = middle(from);
      const width = Math.min(3, 1 + Math.log10(requests + 1));
      if (from === to) {
        lines.push(svg("circle", { cx: x, cy: y, r: 13, "stroke-width": width }));
        continue;
      }
      const [toX, toY] = middle(to);
      const length = Math.hypot(toX - x, toY - y);
      const [alongX, alongY] = [(toX - x) / length, (toY - y) / length];
      const [endX, endY] = [toX - 9 * alongX, toY - 9 * alongY];
      // Bent, so that arrows along a row of cells stay apart.
      const bend = Math.min(14, length / 6);
      const [bentX, bentY] = [(x + endX) / 2 + bend * alongY, (y + endY) / 2 - bend * alongX];
      lines.push(svg("path", { d: `M${x} ${y}Q${bentX} ${bentY} ${endX} ${endY}`, "stroke-width": width }));
      const angle = Math.atan2(endY - bentY, endX - bentX);
      const point = (turn, size) => `${endX + size * Math.cos(angle + turn)} ${endY + size * Math.sin(angle + turn)}`;
      lines.push(svg("path", { class: "head", d: `M${point(0, 4)}L${point(2.5, 5)}L${point(-2.5, 5)}Z` }));
    }
    fill(this.lines, ...lines);
  }
}

function middle(cell) {
  return [cell.offsetLeft + cell.offsetWidth / 2, cell.offsetTop + cell.offsetHeight / 2];
}

/** A signature without its model. */
export function shape(signature) {
  return signature.slice(signature.indexOf(" ") + 1);
}

function byNumbers(a, b) {
  const [left, right] = [a, b].map((text) => text.match(/\d+/g).map(Number));
  for (let index = 0; index < left.length; index += 1) {
    if (left[index] !== right[index]) return left[index] - (right[index] ?? 0);
  }
  return 0;
}
