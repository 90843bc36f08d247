// Models and workers: memory, queues, graphs, and the last losses.

import { facts, fill, h, mark, table } from "./dom.js";
import { bytes, clock, count, plural, seconds } from "./format.js";
import { Models } from "./models.js";

const LOSSES = { lost: "its connection broke", hung: "it stopped reporting", draining: "it was stopped" };

/** The panel. */
export class FleetPanel {
  constructor(element, store, notify) {
    this.store = store;
    this.models = new Models(store, notify);
    this.workers = h("div.cards");
    this.losses = h("div");
    fill(element, h("h2", {}, "Workers"), this.workers, h("h2", {}, "Last losses"), this.losses, h("h2", {}, "Models"), this.models.element);
  }

  update(touched) {
    const whole = !this.shown;
    this.shown = true;
    if (whole || touched.workers?.size || touched.graphs?.size) this.showWorkers();
    if (whole || touched.losses?.size) this.showLosses();
    if (whole || touched.models?.size || touched.workers?.size) this.models.update();
  }

  showWorkers() {
    const graphs = new Map();
    for (const { worker, state } of this.store.graphs.values()) {
      if (!graphs.has(worker)) graphs.set(worker, {});
      graphs.get(worker)[state] = (graphs.get(worker)[state] ?? 0) + 1;
    }
    const workers = [...this.store.workers.values()].sort((a, b) => a.name.localeCompare(b.name));
    const cards = workers.map((worker) => this.card(worker, graphs.get(worker.name) ?? {}));
    fill(this.workers, ...(cards.length ? cards : [h("p.empty", {}, "No worker answers.")]));
  }

  card(worker, states) {
    const ready = `${count(states.ready ?? 0)} ready`;
    const others = ["queued", "tracing", "compiling", "failed"].filter((state) => states[state]).map((state) => `${states[state]} ${state}`);
    return h(
      "article.card",
      { "data-worker": worker.name },
      h("h3", {}, worker.name, h("small", {}, ` ${worker.device} ${worker.warm ? "" : "(starting)"}`)),
      meter("Memory", worker.memory_bytes, worker.max_memory_bytes, bytes),
      meter("Graphs", states.ready ?? 0, worker.max_graphs, count),
      facts([
        ["Graphs", [ready, ...others].join(", ")],
        ["Room", `${plural(worker.room, "graph")} more${worker.exhausted ? ", and a limit keeps it from those that are worth it" : ""}`],
        ["Compiles", `${worker.mode}, ${plural(worker.compile_queue, "graph")} waiting`],
        ["Started in", started(worker.start ?? {})],
      ]),
      ...worker.revisions.map(({ model, state, error }) => h("p.lane", {}, h("b", {}, model), ` ${state}`, error ? h("span.error", {}, error) : null)),
      ...lanesByModel(worker.lanes),
      ...worker.queues.map((queue) => h("p.lane", {}, h("b", {}, queue.model), ` ${plural(queue.calls, "call")}, ${plural(queue.rows, "row")}`)),
    );
  }

  showLosses() {
    const losses = [...this.store.losses.values()].reverse();
    fill(
      this.losses,
      losses.length
        ? table("The last losses of workers", ["When", "Worker", "What happened"], losses.map((loss) => [clock(loss.at), loss.worker, LOSSES[loss.loss] ?? loss.loss]))
        : h("p.empty", {}, "No worker has been lost since the router started."),
    );
  }
}

/** The seconds of all phases of a start; undefined before its end. */
function started(phases) {
  if (!phases.warm_seconds) return undefined;
  return seconds(Object.values(phases).reduce((sum, each) => sum + each, 0));
}

/** A line for each model with the slots of its lanes. */
function lanesByModel(lanes) {
  const models = [...new Set(lanes.map(({ model }) => model))];
  return models.map((model) => h("p.lane", {}, h("b", {}, model), ...lanes.filter((lane) => lane.model === model && lane.slots).map(slotsOf)));
}

function slotsOf({ beams, active, slots, queued }) {
  const squares = h("span.slots", { role: "img", "aria-label": `${active} of ${slots} slots in use` });
  for (let slot = 0; slot < slots; slot += 1) squares.append(h(slot < active ? "i.busy" : "i"));
  return h("span", {}, beams > 1 ? `beams ${beams} ` : null, squares, queued ? ` ${plural(queued, "request")} waiting` : null);
}

function meter(name, value, most, format) {
  if (!most) return h("p.meter", {}, h("span", {}, name), h("span.number", {}, format(value)));
  const bar = h("progress", { max: most, value: Math.min(value, most), "aria-label": name });
  mark(bar, "title", `${format(value)} of ${format(most)}`);
  return h("p.meter", {}, h("span", {}, name), bar, h("span.number", {}, `${format(value)} / ${format(most)}`));
}
