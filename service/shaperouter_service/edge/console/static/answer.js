// What a model answers: sequences side by side, with the probability of each token as its colour.

import { fill, h, say } from "./dom.js";
import { count, percent, plural, seconds } from "./format.js";
import { explained } from "./decision.js";
import { call } from "./service.js";

/** The answer to one request. */
export class Answer {
  constructor(element, store) {
    this.store = store;
    this.id = `console-${crypto.randomUUID ? crypto.randomUUID().slice(0, 8) : String(Math.random()).slice(2, 10)}`;
    this.started = performance.now();
    this.sequences = new Map();
    this.text = h("div.sequences");
    this.facts = h("p.small", { role: "status" }, "Sent.");
    this.warning = h("p.warning", { role: "alert", hidden: true });
    this.error = h("p.error", { role: "alert", hidden: true });
    this.why = h("div");
    fill(element, this.error, this.warning, this.text, this.facts, this.why);
  }

  /** The row of the request, once the service has told of it. */
  get row() {
    for (const [id, row] of this.store.requests) if (id.startsWith(this.id)) return row;
    return undefined;
  }

  /** Says so if a worker was lost while it ran. */
  watch() {
    const lost = this.row?.lost_workers ?? [];
    if (!lost.length) return;
    const now = this.row.code || this.row.worker === undefined ? "" : " and goes on from there";
    say(this.warning, `${lost.join(", ")} was lost while this ran. The text so far is kept${now}.`);
    this.warning.hidden = false;
  }

  /** Adds text to a sequence; `tokens` are its tokens with their log-probabilities, if known. */
  write(index, text, tokens) {
    if (!this.sequences.has(index)) {
      const body = h("div.text");
      const head = h("h3", {}, `Sequence ${index + 1}`);
      const box = h("section.sequence", {}, head, body);
      this.sequences.set(index, { body, head, box, tokens: 0 });
      const order = [...this.sequences.keys()].sort((a, b) => a - b);
      fill(this.text, ...order.map((each) => this.sequences.get(each).box));
      this.text.classList.toggle("several", order.length > 1);
    }
    const { body } = this.sequences.get(index);
    if (tokens?.length) body.append(...tokens.map(tokenElement));
    else if (text) {
      const last = body.lastChild;
      if (last?.nodeType === Node.TEXT_NODE) last.data += text;
      else body.append(text);
    }
  }

  /** Says how a sequence ended. */
  ended(index, reason) {
    const sequence = this.sequences.get(index);
    if (sequence) say(sequence.head, `Sequence ${index + 1}, ended by ${reason}`);
  }

  /** Shows anything else. */
  show(...nodes) {
    fill(this.text, ...nodes);
  }

  fail(error) {
    say(this.error, error.message);
    this.error.hidden = false;
  }

  /** Says how it went, and asks why. */
  async finish(usage) {
    const passed = (performance.now() - this.started) / 1000;
    const tokens = usage?.completion_tokens;
    const rate = tokens ? `, ${count(tokens / passed)} tokens/s` : "";
    say(this.facts, `${usage ? `${plural(usage.prompt_tokens ?? 0, "token")} read, ${tokens === undefined ? "" : `${plural(tokens, "token")} generated, `}` : ""}${seconds(passed)}${rate}. Request ${this.id}.`);
    const row = await this.settled();
    if (!row) return;
    this.watch();
    try {
      const request = await (await call(`console/requests/${encodeURIComponent(row.id)}`)).json();
      fill(this.why, h("details", { open: true }, h("summary", {}, "Explain"), explained(request)));
    } catch (error) {
      fill(this.why, h("p.small", {}, error.message));
    }
  }

  /** Waits until the service has told how the request ended: seconds if it has much to do. */
  async settled() {
    for (let tries = 0; tries < 400 && !this.row?.code; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    return this.row;
  }
}

/** A token whose colour is its probability. */
function tokenElement({ token, logprob, top }) {
  const probability = Math.exp(logprob ?? 0);
  const others = (top ?? []).map(([text, value]) => `${JSON.stringify(text)} ${percent(Math.exp(value))}`).join("\n");
  const known = logprob !== null && logprob !== undefined;
  const title = known ? `${JSON.stringify(token)} ${percent(probability)}${others ? `\n\n${others}` : ""}` : token;
  const level = !known ? "" : probability >= 0.8 ? "p4" : probability >= 0.5 ? "p3" : probability >= 0.2 ? "p2" : probability >= 0.05 ? "p1" : "p0";
  const element = h("span.token", { title }, token);
  if (level) element.classList.add(level);
  return element;
}
