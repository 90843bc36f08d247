// What the page knows of the service: rows by section and key, kept up to date by events.

import { call, events, ServiceError } from "./service.js";

const SECTIONS = ["models", "workers", "losses", "graphs", "requests"];
// Milliseconds until a lost connection is tried again.
const RETRY = 2000;

/** The rows, and who is told when they change. */
export class Store {
  constructor() {
    for (const name of SECTIONS) this[name] = new Map();
    this.totals = { refusals: {} };
    this.client = { client: "", operator: false, repository: false, trace_url: "" };
    /** Rows of graphs by signature, then by worker. */
    this.signatures = new Map();
    this.listeners = [];
    this.state = "connecting";
  }

  /** Has a function called after each change, with the keys that changed by section. */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** Follows the service until the page is left; waits for a token if one is needed. */
  async follow() {
    for (;;) {
      try {
        const response = await call("console/events");
        this.clear();
        for await (const data of events(response)) this.take(JSON.parse(data));
        this.tell("lost", {});
      } catch (error) {
        if (error instanceof ServiceError && error.status === 401) {
          this.tell("refused", {});
          await new Promise((resolve) => addEventListener("token", resolve, { once: true }));
          continue;
        }
        this.tell("lost", {}, error.message);
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }

  clear() {
    for (const name of SECTIONS) this[name].clear();
    this.signatures.clear();
  }

  take({ error, hello, at, changed = {}, gone = {}, totals }) {
    if (error) throw new Error(error.message);
    if (hello) {
      this.client = hello;
      return;
    }
    const touched = {};
    for (const name of SECTIONS) {
      const rows = this[name];
      touched[name] = new Set(Object.keys(changed[name] ?? {}));
      for (const key of gone[name] ?? []) {
        if (name === "graphs") this.forget(rows.get(key));
        rows.delete(key);
        touched[name].add(key);
      }
      for (const [key, row] of Object.entries(changed[name] ?? {})) {
        rows.set(key, row);
        if (name === "graphs") this.index(row);
      }
    }
    this.at = at;
    this.totals = totals;
    this.tell("live", touched);
  }

  index(row) {
    if (!this.signatures.has(row.signature)) this.signatures.set(row.signature, new Map());
    this.signatures.get(row.signature).set(row.worker, row);
  }

  forget(row) {
    const workers = this.signatures.get(row.signature);
    workers.delete(row.worker);
    if (!workers.size) this.signatures.delete(row.signature);
  }

  tell(state, touched, why = "") {
    this.state = state;
    this.why = why;
    for (const listener of this.listeners) listener(touched);
  }

  /** The sum of a graph's values over all workers, and its best state. */
  sum(signature) {
    const total = { state: "cold", workers: [], ready: 0 };
    for (const row of this.signatures.get(signature)?.values() ?? []) {
      total.workers.push(row);
      if (row.state === "ready") total.ready += 1;
      if (RANK.indexOf(row.state) > RANK.indexOf(total.state)) total.state = row.state;
      for (const name of SUMMED) total[name] = (total[name] ?? 0) + (row[name] ?? 0);
    }
    for (const name of SUMMED) total[name] ??= 0;
    return total;
  }
}

// From the state that says least to the one that says most.
const RANK = ["cold", "failed", "queued", "tracing", "compiling", "ready"];
const SUMMED = [
  "traces", "compiles", "loads", "failures", "calls", "device_seconds", "stalls", "stall_seconds",
  "padded_seconds", "missed_seconds",
];
