// The models: their memory and revisions, and which are loaded.

import { fill, h, say, table } from "./dom.js";
import { bytes, count, publicName } from "./format.js";
import { call } from "./service.js";

// Digits of a revision's digest that tell it from others.
const DIGITS = 12;

/** The served models, and for operators a form to load and unload. */
export class Models {
  constructor(store, notify) {
    this.store = store;
    this.notify = notify;
    this.list = h("div");
    this.name = h("input", { id: "model-name", required: true, list: "model-names", autocomplete: "off", spellcheck: "false" });
    this.location = h("input", { id: "model-location", list: "model-locations", autocomplete: "off", spellcheck: "false", placeholder: "as its name" });
    this.names = h("datalist", { id: "model-names" });
    this.locations = h("datalist", { id: "model-locations" });
    this.loading = h("button", { type: "submit" }, "Load");
    this.unloading = h("button", { type: "button", onclick: () => this.unload() }, "Unload");
    this.form = h(
      "form.bar.changes",
      { hidden: true, onsubmit: (event) => this.load(event) },
      h("label", { for: "model-name" }, "Model"),
      this.name,
      h("label", { for: "model-location" }, "Path in the repository"),
      this.location,
      this.loading,
      this.unloading,
      this.names,
      this.locations,
      (this.state = h("span.small", { role: "status" })),
    );
    this.why = h("p.small");
    this.element = h("div", {}, this.list, this.form, this.why);
  }

  update() {
    const caches = {};
    for (const worker of this.store.workers.values()) {
      for (const [revision, size] of Object.entries(worker.cache_bytes)) {
        const model = publicName(revision);
        caches[model] = (caches[model] ?? 0) + size;
      }
    }
    const models = [...this.store.models.values()].sort((a, b) => a.name.localeCompare(b.name));
    fill(
      this.list,
      table(
        "The served models",
        ["Name", "Kind", "Family", "Revision", "Workers", "Parameters", "Weights", "Caches now", "Memory of all workers", "Type", "Longest", "Slots"],
        models.map((model) => [
          model.name,
          model.kind,
          model.family ?? "",
          (model.revision ?? "").slice(0, DIGITS),
          count(model.ready_workers),
          count(model.parameters ?? 0),
          bytes(model.weight_bytes ?? 0),
          caches[model.name] ? bytes(caches[model.name]) : "",
          bytes((model.weight_bytes ?? 0) * model.ready_workers + (caches[model.name] ?? 0)),
          [model.weight_dtype ?? model.dtype, model.kernels].filter(Boolean).join(", "),
          model.max_length ? count(model.max_length) : "",
          model.slots ? count(model.slots) : "",
        ]),
      ),
    );
    const { operator, repository } = this.store.client;
    this.form.hidden = !(operator && repository);
    say(this.why, !repository ? "To load other models here, start the service with --model-repository." : operator ? "" : "Only operators load and unload models.");
    const names = models.map(({ name, revision }) => `${name} ${revision}`).join();
    if (this.form.hidden || names === this.known) return;
    this.known = names;
    fill(this.names, ...models.map(({ name }) => h("option", { value: name })));
    this.index().catch((error) => this.notify(error.message, true));
  }

  /** Asks what the repository has beside the served models. */
  async index() {
    const entries = await (await call("v2/repository/index", { json: {} })).json();
    const unloaded = entries.map(({ name }) => name).filter((name) => !this.store.models.has(name));
    fill(this.locations, ...unloaded.map((name) => h("option", { value: name })));
    say(this.state, unloaded.length ? `Not loaded: ${unloaded.join(", ")}` : "All models of the repository are loaded.");
  }

  async load(event) {
    event.preventDefault();
    const location = this.location.value.trim();
    await this.change("load", location ? { location } : {});
  }

  async unload() {
    if (!this.form.reportValidity()) return;
    if (confirm(`Unload ${this.name.value.trim()}? Requests for it will be refused until it is loaded again.`)) await this.change("unload", {});
  }

  async change(what, parameters) {
    const name = this.name.value.trim();
    this.loading.disabled = this.unloading.disabled = true;
    this.notify(`${what === "load" ? "Loading" : "Unloading"} ${name}…`);
    try {
      await call(`v2/repository/models/${encodeURIComponent(name)}/${what}`, { json: { parameters } });
      this.notify(`${name} is ${what}ed.`);
      this.form.reset();
      await this.index();
    } catch (error) {
      this.notify(error.message, true);
    } finally {
      this.loading.disabled = this.unloading.disabled = false;
    }
  }
}
