// The lattice: of each model, kind and beam width a grid of rows by length.

import { facts, fill, h } from "./dom.js";
import { bytes, count, percent, plural, publicName, seconds } from "./format.js";
import { Grid, shape } from "./grid.js";
import { Ladders } from "./ladders.js";
import { call } from "./service.js";

const STATES = ["cold", "queued", "tracing", "compiling", "ready", "failed"];
const KINDS = { encode: 0, prefill: 1, score: 2, decode: 3, align: 4, call: 5 };

/** The panel. */
export class LatticePanel {
  constructor(element, store, notify) {
    this.store = store;
    this.notify = notify;
    this.grids = new Map();
    this.shapes = new Map();
    this.selected = null;
    this.model = h("select", { id: "lattice-model", onchange: () => this.arrange() });
    this.arrows = h("input", { type: "checkbox", id: "lattice-arrows", checked: true, onchange: () => this.route(true) });
    this.body = h("div.grids");
    this.inspector = h("aside.inspector", { "aria-label": "The selected graph", "aria-live": "off" });
    fill(
      element,
      h(
        "div.bar",
        {},
        h("label", { for: "lattice-model" }, "Model"),
        this.model,
        h("label", { for: "lattice-arrows" }, this.arrows, " Last routes"),
        legend(),
      ),
      h("div.split", {}, h("div", {}, this.body, new Ladders(store).element), this.inspector),
    );
  }

  /** Shows what has changed. */
  update(touched) {
    if (touched.models?.size) this.arrange();
    const fresh = [];
    for (const key of touched.graphs ?? []) {
      const row = this.store.graphs.get(key);
      const signature = row?.signature ?? key.slice(key.indexOf(" ") + 1);
      fresh.push(signature);
      if (row && !this.shapes.has(signature)) this.extra(row);
    }
    const grids = new Set();
    for (const signature of fresh) {
      const grid = this.shapes.get(signature);
      if (grid) grids.add(grid);
    }
    for (const grid of grids) grid.paint(fresh);
    if (touched.requests?.size || touched.models?.size) this.route(false);
    this.inspect();
  }

  /** Lays out the grids of all models, or of the chosen one. */
  arrange() {
    const models = [...this.store.models.values()].sort((a, b) => a.name.localeCompare(b.name));
    const chosen = this.model.value;
    const names = models.filter((model) => model.revisions).map((model) => model.name);
    if (names.join() !== this.names) {
      this.names = names.join();
      fill(this.model, h("option", { value: "" }, "All models"), ...names.map((name) => h("option", { value: name }, name)));
      this.model.value = names.includes(chosen) ? chosen : "";
    }
    const layout = JSON.stringify([this.model.value, models.map((model) => [model.name, model.revisions, model.lattices]), [...this.extras()]]);
    if (layout === this.layout) return;
    this.layout = layout;
    this.grids.clear();
    this.shapes.clear();
    const sections = [];
    for (const model of models) {
      // An alias has no graphs of its own.
      if (!model.revisions) continue;
      if (this.model.value && this.model.value !== model.name) continue;
      const lattices = this.lattices(model).sort(
        (a, b) => a.model.localeCompare(b.model) || KINDS[a.kind] - KINDS[b.kind] || a.beams - b.beams,
      );
      const grids = lattices.map((lattice) => new Grid(this, model, lattice));
      for (const grid of grids) {
        this.grids.set(grid.key, grid);
        for (const signature of grid.cells.keys()) this.shapes.set(signature, grid);
      }
      sections.push(
        h(
          "section.shapes",
          { "aria-label": `Lattices of ${model.name}` },
          h("h2", {}, model.name, h("small", {}, ` ${model.kind}, ${model.family ?? ""}`)),
          h("div.lattices", {}, ...grids.map((grid) => grid.element)),
          grids.length ? null : h("p.empty", {}, "Each size of this model has a graph of its own; none has been made yet."),
        ),
      );
    }
    fill(this.body, ...(sections.length ? sections : [h("p.empty", {}, "No worker has loaded a model yet.")]));
    for (const grid of this.grids.values()) grid.paint([...grid.cells.keys()]);
    this.route(true);
    this.inspect();
  }

  /** The lattices of a model, with the shapes that its ladders do not list. */
  lattices(model) {
    const found = (model.lattices ?? []).map((each) => ({ ...each, lengths: each.lengths.map(([length, rows]) => [length, [...rows]]) }));
    for (const row of this.store.graphs.values()) {
      if (!model.revisions.includes(row.model)) continue;
      let lattice = found.find((each) => each.model === row.model && each.kind === row.kind && each.beams === row.beams);
      if (!lattice) found.push((lattice = { model: row.model, kind: row.kind, beams: row.beams, lengths: [] }));
      let length = lattice.lengths.find(([text]) => text === row.length);
      if (!length) lattice.lengths.push((length = [row.length, []]));
      if (!length[1].includes(row.rows)) length[1].push(row.rows);
    }
    return found;
  }

  *extras() {
    for (const signature of this.store.signatures.keys()) {
      if (this.unlisted?.has(signature)) yield signature;
    }
  }

  /** A graph with a shape that no ladder lists, such as one of exact sizes. */
  extra(row) {
    const name = publicName(row.model);
    if (this.model.value && this.model.value !== name) return;
    // A revision that is being freed is no longer the model's.
    if (!this.store.models.get(name)?.revisions?.includes(row.model)) return;
    (this.unlisted ??= new Set()).add(row.signature);
    this.arrange();
  }

  /** Draws the last routes: from what was asked for to what served it. */
  route(always) {
    const routes = new Map();
    for (const request of this.store.requests.values()) {
      for (const { asked, served, calls } of request.graphs ?? []) {
        const key = `${asked}\n${served}`;
        const route = routes.get(key) ?? { asked, served, calls: 0, requests: 0 };
        route.calls += calls;
        route.requests += 1;
        routes.set(key, route);
      }
    }
    this.routes = [...routes.values()];
    const text = JSON.stringify([this.arrows.checked, this.routes]);
    if (text === this.routed && !always) return;
    this.routed = text;
    for (const grid of this.grids.values()) {
      grid.route(this.arrows.checked ? this.routes.filter(({ asked }) => grid.cells.has(asked)) : []);
    }
  }

  /** Shows a graph in the inspector from now on; null shows what costs most. */
  select(signature) {
    this.selected = signature;
    for (const cell of this.body.querySelectorAll("[aria-selected=true]")) cell.removeAttribute("aria-selected");
    this.shapes.get(signature)?.cells.get(signature)?.setAttribute("aria-selected", "true");
    this.inspect();
  }

  /** Shows what costs most again. */
  leave() {
    document.activeElement?.blur();
    this.select(null);
  }

  inspect() {
    // An inspector that is rebuilt under a pointer or a focus would lose its click.
    if (this.inspector.contains(document.activeElement)) return;
    const { selected } = this;
    fill(this.inspector, ...(selected && this.shapes.has(selected) ? this.about(selected) : this.costs()));
  }

  about(signature) {
    const total = this.store.sum(signature);
    const can = this.store.client.operator;
    const routes = (this.routes ?? []).filter(({ asked, served }) => asked === signature || served === signature);
    const model = this.store.models.get(this.shapes.get(signature).model.name);
    return [
      h("p", {}, h("button.link", { type: "button", onclick: () => this.leave() }, "What costs most")),
      h("h2", {}, signature),
      h("p.state", {}, h(`span.dot.${total.state}`, { "aria-hidden": "true" }), stateText(total, this.store.workers.size)),
      facts([
        ["Calls", total.calls ? count(total.calls) : undefined],
        ["Device time", total.device_seconds ? seconds(total.device_seconds) : undefined],
        ["On padding", total.padded_seconds ? `${seconds(total.padded_seconds)} (${percent(total.padded_seconds / total.device_seconds)}), which a smaller graph would save` : undefined],
        ["Stalls", total.stalls ? `${count(total.stalls)}: no ready graph was large enough, and waiting until this one was compiled took ${seconds(total.stall_seconds)}` : undefined],
        ["Missed", total.missed_seconds ? `${seconds(total.missed_seconds)} of device time lost while it was missing` : undefined],
        ["Traces", total.traces],
        ["Compilations", total.compiles ? count(total.compiles) : undefined],
        ["From the cache", total.loads ? count(total.loads) : undefined],
        ["Failures", total.failures ? count(total.failures) : undefined],
        ["Bytes a token", model?.kv_cache_bytes_per_token ? bytes(model.kv_cache_bytes_per_token) : undefined],
      ]),
      ...total.workers
        .sort((a, b) => a.worker.localeCompare(b.worker))
        .map((row) =>
          h(
            "p.worker",
            {},
            h(`span.dot.${row.state}`, { "aria-hidden": "true" }),
            h("b", {}, row.worker),
            ` ${row.state}`,
            row.make_seconds ? `, made in ${seconds(row.make_seconds)}` : "",
            row.step_seconds ? `, ${seconds(row.step_seconds)} a ${row.kind === "decode" ? "step" : "call"}` : "",
            row.error ? h("span.error", {}, ` ${row.error}`) : null,
          ),
        ),
      routes.length
        ? h(
            "div",
            {},
            h("h3", {}, "Last routes"),
            ...routes.slice(0, 8).map(({ asked, served, requests }) =>
              h("p.small", {}, asked === served ? "asked and served" : asked === signature ? `asked, served by ${shape(served)}` : `served ${shape(asked)}`, `: ${plural(requests, "request")}`),
            ),
          )
        : null,
      can
        ? h(
            "p.buttons",
            {},
            h("button", { type: "button", onclick: () => this.warm(signature, false) }, "Warm on one worker"),
            h("button", { type: "button", onclick: () => this.warm(signature, true) }, "Warm on all"),
          )
        : h("p.small", {}, "Only operators can warm graphs."),
    ];
  }

  /** What costs most: the first thing to look at. */
  costs() {
    const all = [...this.store.signatures.keys()].map((signature) => ({ signature, ...this.store.sum(signature) }));
    for (const each of all) each.missing_seconds = each.state === "ready" ? 0 : each.missed_seconds;
    const list = (title, empty, key, told) => {
      const top = all.filter((each) => each[key] > 0).sort((a, b) => b[key] - a[key]).slice(0, 5);
      return [
        h("h3", {}, title),
        top.length
          ? h("ol.top", {}, ...top.map((each) => h("li", {}, h("button.link", { type: "button", onclick: () => this.reveal(each.signature) }, each.signature), h("span", {}, told(each)))))
          : h("p.small", {}, empty),
      ];
    };
    return [
      h("h2", {}, "What costs most"),
      ...list("Stalls", "No request has waited for a compilation.", "stall_seconds", (each) => `${seconds(each.stall_seconds)} in ${plural(each.stalls, "stall")}`),
      ...list("Padding", "No device time went to padding that a smaller graph would have saved.", "padded_seconds", (each) => `${seconds(each.padded_seconds)}, ${percent(each.padded_seconds / each.device_seconds)} of its time`),
      ...list("Missing graphs", "No graph is missed.", "missing_seconds", (each) => `would have saved ${seconds(each.missing_seconds)}; select it to warm it`),
      ...list("Device time", "No graph has been called yet.", "device_seconds", (each) => `${seconds(each.device_seconds)} in ${plural(each.calls, "call")}`),
      h("p.small", {}, "Point at a cell, or move with the arrow keys, to see what is known of its graph."),
    ];
  }

  reveal(signature) {
    const cell = this.shapes.get(signature)?.cells.get(signature);
    document.activeElement?.blur();
    this.select(signature);
    cell?.scrollIntoView({ block: "nearest", inline: "nearest" });
    cell?.focus();
  }

  async warm(signature, everywhere) {
    this.notify(`Requesting ${signature}…`);
    try {
      const response = await call("console/warm", { json: { signature, all_workers: everywhere } });
      const graphs = await response.json();
      const failed = graphs.filter((graph) => graph.state === "failed");
      const where = graphs.map((graph) => graph.worker).join(", ");
      if (failed.length) this.notify(failed.map((graph) => `${graph.worker} will not make it: ${graph.error}`).join("; "), true);
      else this.notify(graphs.every((graph) => graph.state === "ready") ? `${signature} is ready on ${where}` : `${where} makes ${signature}`);
    } catch (error) {
      this.notify(error.message, true);
    }
  }
}

function stateText(total, workers) {
  if (total.state === "cold") return " cold: nothing has requested it";
  if (total.state === "ready") return ` ready on ${count(total.ready)} of ${plural(workers, "worker")}`;
  return ` ${total.state}`;
}

function legend() {
  return h(
    "ul.legend",
    { "aria-label": "States of graphs" },
    ...STATES.map((state) => h("li", {}, h(`span.dot.${state}`, { "aria-hidden": "true" }), state)),
    h("li", {}, h("span.corner", { "aria-hidden": "true" }), "has stalled requests"),
    h("li", {}, h("span.route", { "aria-hidden": "true" }, "→"), "asked to served"),
  );
}
