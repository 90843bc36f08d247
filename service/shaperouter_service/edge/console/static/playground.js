// The playground: one request to one model.

import { Answer } from "./answer.js";
import { fill, h, say } from "./dom.js";
import { OptionsForm } from "./options.js";
import { call, token } from "./service.js";
import { FORMS, snippet } from "./snippets.js";
import { tasksOf } from "./tasks.js";

/** The panel. */
export class PlaygroundPanel {
  constructor(element, store, notify) {
    this.store = store;
    this.notify = notify;
    this.model = h("select", { id: "play-model", onchange: () => this.choose() });
    this.tasks = h("div.tasks", { role: "radiogroup", "aria-label": "What to ask" });
    this.fields = h("div");
    this.options = new OptionsForm(() => this.preview());
    this.streams = h("input", { type: "checkbox", id: "play-stream", checked: true, onchange: () => this.preview() });
    this.colours = h("input", { type: "checkbox", id: "play-logprobs", onchange: () => this.preview() });
    this.send = h("button.primary", { type: "submit" }, "Send");
    this.stop = h("button", { type: "button", disabled: true, onclick: () => this.abort?.abort() }, "Stop");
    this.generating = h(
      "div",
      {},
      h("p.checks", {}, h("label", {}, this.streams, " Stream"), h("label", {}, this.colours, " Probability of tokens as colour")),
      this.options.element,
    );
    this.form = h("form.ask", { novalidate: true, onsubmit: (event) => this.submit(event), oninput: () => this.preview() },
      h("div.field", {}, h("label", { for: "play-model" }, "Model"), this.model),
      this.tasks, this.fields, h("p.buttons", {}, this.send, this.stop, h("kbd", {}, "Ctrl Enter")), this.generating);
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    this.output = h("div.answer", {}, h("p.empty", {}, "The answer appears here."));
    this.kind = h("select", { id: "play-copy", onchange: () => this.preview() }, ...Object.entries(FORMS).map(([key, name]) => h("option", { value: key }, name)));
    this.code = h("pre", { tabindex: "0", "aria-label": "The request to copy" });
    fill(
      element,
      h(
        "div.play",
        {},
        this.form,
        h(
          "div",
          {},
          h("section", { "aria-label": "Answer" }, this.output),
          h("section.copy", { "aria-label": "Copy" }, h("div.bar", {}, h("label", { for: "play-copy" }, "Copy as"), this.kind, h("button", { type: "button", onclick: () => this.copy() }, "Copy")), this.code),
        ),
      ),
    );
  }

  update(touched) {
    this.answer?.watch();
    if (this.model.options.length && !touched.models?.size) return;
    const names = [...this.store.models.keys()].sort();
    if (!names.length || names.join() === this.names) return;
    const chosen = this.model.value;
    this.names = names.join();
    fill(this.model, ...names.map((name) => h("option", { value: name }, name)));
    if (names.includes(chosen)) this.model.value = chosen;
    else this.choose();
    if (!this.options.inputs.size) this.options.load().catch((error) => this.notify(error.message, true));
  }

  get chosen() {
    return this.store.models.get(this.model.value);
  }

  choose() {
    const tasks = tasksOf(this.chosen);
    fill(
      this.tasks,
      ...tasks.map((task, index) =>
        h("label", {}, h("input", { type: "radio", name: "task", value: index, checked: index === 0, onchange: () => this.ask(task) }), ` ${task.name}`),
      ),
    );
    this.tasks.hidden = tasks.length < 2;
    this.ask(tasks[0]);
  }

  async ask(task) {
    this.task = task;
    this.generating.hidden = !task.generates;
    try {
      if (task.load) await task.load(this.chosen);
      fill(this.fields, ...task.fields());
      this.preview();
    } catch (error) {
      fill(this.fields, h("p.error", {}, error.message));
    }
  }

  /** The request that the form describes. Throws if a field cannot be read. */
  request() {
    const { task, chosen } = this;
    const options = task.generates ? this.options.values() : {};
    const beams = (options.num_beams ?? 1) > 1;
    const asked = { streams: this.streams.checked, logprobs: this.colours.checked ? (beams ? 0 : 3) : null };
    const path = typeof task.path === "function" ? task.path(chosen) : task.path;
    const request = { path, model: chosen.name, options, secured: token() !== "" };
    if (task.form) return { ...request, fields: [["model", chosen.name], ["stream", "true"], ["file", "@recording.wav"]] };
    return { ...request, body: task.body(this.form, chosen, options, asked) };
  }

  preview() {
    if (!this.task) return;
    try {
      say(this.code, snippet(this.kind.value, this.request()));
    } catch (error) {
      say(this.code, `# ${error.message}`);
    }
  }

  async submit(event) {
    event.preventDefault();
    if (this.abort || !this.task) return;
    const { task } = this;
    const answer = new Answer(this.output, this.store);
    this.answer = answer;
    this.abort = new AbortController();
    this.send.disabled = true;
    this.stop.disabled = false;
    let usage;
    try {
      const { path, body } = this.request();
      const headers = { "x-request-id": answer.id };
      const { signal } = this.abort;
      const response = task.form
        ? await call(path, { method: "POST", body: task.form(this.form, this.chosen), headers, signal })
        : await call(path, { json: body, headers, signal });
      usage = await task.run(answer, response, this.form);
    } catch (error) {
      answer.fail(error.name === "AbortError" ? new Error("Stopped.") : error);
    } finally {
      this.abort = null;
      this.send.disabled = false;
      this.stop.disabled = true;
    }
    await answer.finish(usage);
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.code.textContent);
      this.notify("Copied.");
    } catch {
      // Only pages of this machine or of TLS may write to the clipboard.
      getSelection().selectAllChildren(this.code);
      this.notify("Selected: press Ctrl C to copy.");
    }
  }
}
