// The last requests, as bars of their parts.

import { facts, fill, h, mark, say } from "./dom.js";
import { explained, PARTS, parts } from "./decision.js";
import { clock, count, plural, seconds } from "./format.js";
import { call } from "./service.js";

const FILTERS = {
  all: ["All", () => true],
  running: ["Running", (request) => !request.code],
  stalled: ["Stalled", (request) => request.stall_seconds > 0],
  failed: ["Failed", (request) => request.code && request.code !== "OK"],
  moved: ["Lost a worker", (request) => request.lost_workers?.length],
};

/** The panel. */
export class RequestsPanel {
  constructor(element, store) {
    this.store = store;
    this.rows = new Map();
    this.text = h("input", { type: "search", id: "requests-text", placeholder: "model, client, worker, id, graph", oninput: () => this.update() });
    this.filter = h("select", { id: "requests-filter", onchange: () => this.update() }, ...Object.entries(FILTERS).map(([key, [name]]) => h("option", { value: key }, name)));
    this.align = h("select", { id: "requests-align", onchange: () => this.update() }, h("option", { value: "start" }, "durations"), h("option", { value: "clock" }, "on the clock"));
    this.order = h("select", { id: "requests-order", onchange: () => this.update() }, h("option", { value: "newest" }, "newest first"), h("option", { value: "slowest" }, "slowest first"));
    this.body = h("tbody");
    this.empty = h("p.empty");
    this.scale = h("span.scale");
    fill(
      element,
      h(
        "div.bar",
        {},
        h("label", { for: "requests-text" }, "Filter"),
        this.text,
        h("label", { for: "requests-filter" }, "Show"),
        this.filter,
        h("label", { for: "requests-align" }, "Bars"),
        this.align,
        h("label", { for: "requests-order" }, "Order"),
        this.order,
        h("ul.legend", { "aria-label": "Parts of a request" }, ...PARTS.map(([key, name, help]) => h("li", { title: help }, h(`span.part.${key}`, { "aria-hidden": "true" }), name))),
      ),
      h(
        "div.scroll",
        { tabindex: "0", role: "region", "aria-label": "The last requests" },
        h(
          "table.waterfall",
          {},
          h("caption.hidden", {}, "The last hundred requests"),
          h("thead", {}, h("tr", {}, ...["Arrived", "Model", "Client", "State", "Tokens"].map((name) => h("th", { scope: "col" }, name)), h("th.wide", { scope: "col" }, "Time ", this.scale), h("th", { scope: "col" }, "Total"), h("th", { scope: "col" }, "Worker"))),
          this.body,
        ),
      ),
      this.empty,
    );
  }

  update() {
    const requests = [...this.store.requests.values()].filter((request) => this.matches(request)).reverse();
    if (this.order.value === "slowest") requests.sort((a, b) => (b.total_seconds ?? 0) - (a.total_seconds ?? 0));
    const onClock = this.align.value === "clock";
    const first = Math.min(...requests.map((request) => request.arrived_at));
    const last = Math.max(...requests.map((request) => request.arrived_at + (request.total_seconds ?? 0)));
    const span = Math.max(1e-6, onClock ? last - first : Math.max(...requests.map((request) => request.total_seconds ?? 0)));
    say(this.scale, requests.length ? `0 to ${seconds(span)}` : "");
    this.empty.hidden = requests.length > 0;
    say(this.empty, this.store.requests.size ? "None of the last hundred requests is like this." : "No requests yet. The playground can send one.");
    const shown = new Set(requests.map((request) => request.id));
    for (const [id, row] of this.rows) {
      if (shown.has(id)) continue;
      row.element.remove();
      row.detail?.remove();
      this.rows.delete(id);
    }
    let before = null;
    for (const request of requests) {
      let row = this.rows.get(request.id);
      if (!row) this.rows.set(request.id, (row = this.make(request.id)));
      this.paint(row, request, span, onClock ? request.arrived_at - first : 0);
      const place = before ? before.nextSibling : this.body.firstChild;
      if (row.element !== place) this.body.insertBefore(row.element, place);
      if (row.detail && row.detail.previousSibling !== row.element) row.element.after(row.detail);
      before = row.detail ?? row.element;
    }
  }

  matches(request) {
    if (!FILTERS[this.filter.value][1](request)) return false;
    const wanted = this.text.value.trim().toLowerCase();
    if (!wanted) return true;
    const graphs = (request.graphs ?? []).flatMap((use) => [use.asked, use.served]);
    return [request.id, request.model, request.client, request.code, request.worker, request.method, request.trace_id, ...graphs].join("\n").toLowerCase().includes(wanted);
  }

  make(id) {
    const cells = Object.fromEntries(["arrived", "model", "client", "state", "tokens", "bar", "total", "worker"].map((name) => [name, h(`td.${name}`)]));
    const open = h("button.link", { type: "button", "aria-expanded": "false", onclick: () => this.toggle(id) });
    cells.arrived.append(open);
    const segments = PARTS.map(([key]) => h(`span.part.${key}`));
    const bar = h("div.bars", { role: "img" }, ...segments);
    cells.bar.append(bar);
    return { element: h("tr", { "data-request": id }, ...Object.values(cells)), cells, open, bar, segments, detail: null };
  }

  paint({ cells, open, bar, segments, element }, request, span, offset) {
    const found = parts(request);
    say(open, clock(request.arrived_at));
    say(cells.model, request.model ?? "");
    say(cells.client, request.client ?? "");
    say(cells.state, request.code ? request.code.toLowerCase().replaceAll("_", " ") : "running");
    mark(element, "data-code", request.code ?? "");
    say(cells.tokens, request.rows ? plural(request.rows, "row") : `${count(request.prompt_tokens ?? 0)} + ${count(request.generated_tokens ?? 0)}`);
    say(cells.total, seconds(request.total_seconds ?? 0));
    say(cells.worker, (request.lost_workers?.length ? `${request.lost_workers.join(", ")} lost, ` : "") + (request.worker ?? ""));
    mark(cells.worker, "class", request.lost_workers?.length ? "worker warning" : "worker");
    bar.style.setProperty("margin-left", `${(100 * offset) / span}%`);
    PARTS.forEach(([key], index) => segments[index].style.setProperty("width", `${(100 * found[key]) / span}%`));
    mark(bar, "aria-label", PARTS.filter(([key]) => found[key] > 0).map(([key, name]) => `${name} ${seconds(found[key])}`).join(", ") || "no time yet");
    mark(bar, "title", bar.getAttribute("aria-label"));
  }

  async toggle(id) {
    const row = this.rows.get(id);
    if (row.detail) {
      row.detail.remove();
      row.detail = null;
      mark(row.open, "aria-expanded", "false");
      return;
    }
    const content = h("td", { colspan: 8 }, h("p.small", {}, "Asking…"));
    row.detail = h("tr.detail", {}, content);
    mark(row.open, "aria-expanded", "true");
    row.element.after(row.detail);
    try {
      const request = await (await call(`console/requests/${encodeURIComponent(id)}`)).json();
      fill(
        content,
        facts([
          ["Id", request.id],
          ["Trace", traceOf(request, this.store.client.trace_url)],
          ["Called", request.method],
          ["First token", request.first_token_seconds ? `after ${seconds(request.first_token_seconds)}` : undefined],
          ["Tokenizing", request.tokenize_seconds ? seconds(request.tokenize_seconds) : undefined],
        ]),
        explained(request),
      );
    } catch (error) {
      fill(content, h("p.error", {}, error.message));
    }
  }
}

/** The id of a request's trace, as a link if the service knows where traces are shown. */
function traceOf({ trace_id: id }, url) {
  if (!id || !url) return id;
  return h("a", { href: url.replaceAll("{trace_id}", id), target: "_blank", rel: "noopener noreferrer" }, id);
}
