// A form of the generation options, from the service's one table of them.

import { fill, h } from "./dom.js";
import { call } from "./service.js";

const HINTS = {
  tokens: "ids, with commas",
  texts: "one a line",
  words: "one a line",
  runs: "[[1, 2], [3]]",
  logit_bias: '{"50256": -100}',
};
// What other fields of the playground set.
const ELSEWHERE = ["logprobs", "prompt_logprobs", "echo"];

/** The form. */
export class OptionsForm {
  constructor(onchange) {
    this.onchange = onchange;
    this.inputs = new Map();
    this.element = h("div.options");
  }

  /** Reads the table, and shows an input for each option. */
  async load() {
    const options = (await (await call("console/options")).json()).filter(({ name }) => !ELSEWHERE.includes(name));
    const groups = Map.groupBy ? Map.groupBy(options, ({ group }) => group) : grouped(options);
    fill(
      this.element,
      ...[...groups].map(([group, members], index) =>
        h("details", { open: index === 0 }, h("summary", {}, group, h("span.given")), ...members.map((option) => this.field(option))),
      ),
    );
  }

  field(option) {
    const id = `option-${option.name}`;
    const help = `${option.help}${option.rule ? ` ${capital(option.rule)}.` : ""}${option.needs ? ` Needs ${option.needs}.` : ""}`;
    const input = this.input(option, id);
    input.setAttribute("aria-describedby", `${id}-help`);
    this.inputs.set(option.name, { option, input });
    return h("div.option", {}, h("label", { for: id }, h("code", {}, option.name)), input, h("p.small", { id: `${id}-help` }, help.replaceAll("`", "")));
  }

  input({ kind, low, high, default: usual, name }, id) {
    const changed = { oninput: () => this.changed(name) };
    const placeholder = usual === "" || usual === undefined ? "" : String(usual);
    if (kind === "flag") {
      return h("select", { id, ...changed }, h("option", { value: "" }, placeholder.length > 12 ? "default" : placeholder || "default"), h("option", { value: "true" }, "true"), h("option", { value: "false" }, "false"));
    }
    if (kind === "early_stopping") {
      return h("select", { id, ...changed }, h("option", { value: "" }, "default"), ...["true", "false", "never"].map((value) => h("option", { value }, value)));
    }
    if (kind === "count" || kind === "seed" || kind === "token" || kind === "number") {
      return h("input", { id, type: "number", step: kind === "number" ? "any" : 1, min: low, max: high ?? undefined, placeholder, ...changed });
    }
    if (kind === "text" || kind === "language") return h("input", { id, type: "text", placeholder, ...changed });
    return h("textarea", { id, rows: 1, placeholder: HINTS[kind] ?? placeholder, ...changed });
  }

  changed(name) {
    const details = this.inputs.get(name).input.closest("details");
    const given = [...details.querySelectorAll("input, select, textarea")].filter((input) => input.value !== "").length;
    details.querySelector(".given").textContent = given ? ` ${given} given` : "";
    this.onchange();
  }

  /** The options that are given. Throws if one cannot be read. */
  values() {
    const values = {};
    for (const [name, { option, input }] of this.inputs) {
      if (input.validity.badInput) throw new Error(`${name} must be a number`);
      if (input.value !== "") values[name] = value(name, option.kind, input.value);
    }
    return values;
  }
}

function value(name, kind, text) {
  switch (kind) {
    case "flag":
      return text === "true";
    case "early_stopping":
      return text === "never" ? text : text === "true";
    case "count":
    case "seed":
    case "token":
    case "number":
      return Number(text);
    case "tokens":
      return text.split(/[\s,]+/).filter(Boolean).map(Number);
    case "texts":
    case "words":
      return text.split("\n").filter(Boolean);
    case "runs":
    case "logit_bias":
      try {
        return JSON.parse(text);
      } catch {
        throw new Error(`${name} must be JSON, such as ${HINTS[kind]}`);
      }
    default:
      return text;
  }
}

function grouped(options) {
  const groups = new Map();
  for (const option of options) {
    if (!groups.has(option.group)) groups.set(option.group, []);
    groups.get(option.group).push(option);
  }
  return groups;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
