// What each kind of model can be asked: its form, its call, and what becomes of the answer.

import { h, table } from "./dom.js";
import { Microphone } from "./microphone.js";
import { call, events } from "./service.js";

// Rows of a tensor that are shown.
const MOST_ROWS = 64;

/** A text to continue, or a source to answer. */
export const text = {
  name: "Text",
  generates: true,
  fields: () => [area("prompt", "Prompt", "TensorFlow is", 4)],
  path: "v1/completions",
  body: (form, model, options, asked) => ({ model: model.name, prompt: form.prompt.value, ...options, ...(asked.logprobs === null ? {} : { logprobs: asked.logprobs }), ...streamed(asked) }),
  run: (answer, response) =>
    generate(answer, response, ({ text: part, logprobs }) => [
      part,
      logprobs?.tokens?.map((token, index) => ({ token, logprob: logprobs.token_logprobs[index], top: Object.entries(logprobs.top_logprobs?.[index] ?? {}) })),
    ]),
};

/** A conversation of a system's message and one of the user. */
export const chat = {
  name: "Chat",
  generates: true,
  fields: () => [area("system", "System", "", 2), area("user", "User", "Hello!", 4)],
  path: "v1/chat/completions",
  body: (form, model, options, asked) => ({
    model: model.name,
    messages: [...(form.system.value ? [{ role: "system", content: form.system.value }] : []), { role: "user", content: form.user.value }],
    ...options,
    ...(asked.logprobs === null ? {} : { logprobs: true, top_logprobs: asked.logprobs }),
    ...streamed(asked),
  }),
  run: (answer, response) =>
    generate(answer, response, ({ delta, message, logprobs }) => {
      const { reasoning_content: reasoning, content, tool_calls: calls } = delta ?? message;
      const part = [reasoning, content, calls?.length ? JSON.stringify(calls) : ""].filter(Boolean).join("");
      return [part, logprobs?.content?.map(({ token, logprob, top_logprobs: top }) => ({ token, logprob, top: top.map((each) => [each.token, each.logprob]) }))];
    }),
};

/** Texts to embed. */
export const embeddings = {
  name: "Embeddings",
  fields: () => [area("input", "Texts, one a line", "A cat sits on the mat.\nA kitten is on the rug.\nStocks fell on Monday.", 5)],
  path: "v1/embeddings",
  body: (form, model) => ({ model: model.name, input: form.input.value.split("\n").filter(Boolean) }),
  async run(answer, response, form) {
    const { data, usage } = await response.json();
    const vectors = data.map(({ embedding }) => embedding);
    const texts = form.input.value.split("\n").filter(Boolean);
    answer.show(
      h("h3", {}, `${vectors.length} embeddings of ${vectors[0].length} numbers: cosine of each pair`),
      table("Cosines", ["", ...texts.map((_, index) => `${index + 1}`)], vectors.map((vector, index) => [`${index + 1}. ${texts[index].slice(0, 40)}`, ...vectors.map((other) => cosine(vector, other).toFixed(3))])),
      h("h3", {}, "First numbers"),
      table("First numbers", ["", ..."12345678"], vectors.map((vector, index) => [`${index + 1}`, ...vector.slice(0, 8).map((value) => value.toFixed(4))])),
    );
    return usage;
  },
};

/** A recording to transcribe. */
export const speech = {
  name: "Speech",
  fields() {
    const file = h("input", { id: "speech-file", name: "file", type: "file", accept: "audio/*", required: true });
    const microphone = new Microphone((recording) => {
      const files = new DataTransfer();
      files.items.add(recording);
      file.files = files.files;
    });
    return [
      h("div.field", {}, h("label", { for: "speech-file" }, "Recording (WAV, FLAC, OGG or MP3), or speak"), file, microphone.element),
      h("div.field", {}, h("label", { for: "speech-language" }, "Language, or empty to detect it"), h("input", { id: "speech-language", name: "language", type: "text" })),
    ];
  },
  path: "v1/audio/transcriptions",
  form(form, model) {
    const body = new FormData();
    body.set("model", model.name);
    if (form.language.value) body.set("language", form.language.value);
    body.set("stream", "true");
    if (!form.file.files.length) throw new Error("choose a recording first");
    body.set("file", form.file.files[0]);
    return body;
  },
  async run(answer, response) {
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      if (event.type === "transcript.text.delta") answer.write(0, event.delta);
    }
    return undefined;
  },
};

/** Tensors for a function, or texts for a classifier: a form from its signature. */
export const tensors = {
  name: "Call",
  async load(model) {
    const metadata = await (await call(`v2/models/${encodeURIComponent(model.name)}`)).json();
    this.inputs = metadata.inputs;
    this.outputs = metadata.outputs;
  },
  fields() {
    return [
      ...this.inputs.map(({ name, datatype, shape }) => {
        const sizes = shape.map((size) => (size < 0 ? 2 : size));
        const id = `tensor-${name}`;
        const value = h("textarea", { id, name: `data:${name}`, rows: 3, spellcheck: "false" });
        value.value = JSON.stringify(example(sizes, datatype));
        return h("div.field", {}, h("label", { for: id }, h("code", {}, name), ` ${datatype} [${shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]`), value);
      }),
      h("p.small", {}, `Nested lists of values. It answers ${this.outputs.map(({ name, datatype, shape }) => `${name} ${datatype} [${shape.join(", ")}]`).join("; ")}.`),
    ];
  },
  path: (model) => `v2/models/${encodeURIComponent(model.name)}/infer`,
  body(form) {
    return {
      inputs: this.inputs.map(({ name, datatype }) => {
        let data;
        try {
          data = JSON.parse(form.elements[`data:${name}`].value);
        } catch {
          throw new Error(`${name} must be lists of values, in JSON`);
        }
        return { name, datatype, shape: shapeOf(data), data };
      }),
    };
  },
  async run(answer, response) {
    const { outputs } = await response.json();
    answer.show(
      ...outputs.flatMap(({ name, datatype, shape, data }) => {
        const width = Math.max(1, shape.slice(1).reduce((product, size) => product * size, 1));
        const rows = Array.from({ length: Math.min(MOST_ROWS, Math.ceil(data.length / width)) }, (_, row) => [`${row}`, ...data.slice(row * width, (row + 1) * width).slice(0, 16).map(shown)]);
        return [h("h3", {}, `${name} ${datatype} [${shape.join(", ")}]`), table(name, ["row", ...(rows[0] ?? []).slice(1).map((_, column) => `${column}`)], rows)];
      }),
    );
    return undefined;
  },
};

/** The tasks of a model. */
export function tasksOf(model) {
  if (model.kind === "transcriber") return [speech];
  if (model.kind === "embedder") return [embeddings];
  if (model.kind === "classifier" || model.kind === "function") return [tensors];
  return model.kind === "encoder-decoder" ? [text] : [text, chat];
}

function area(name, label, value, rows) {
  const id = `field-${name}`;
  const input = h("textarea", { id, name, rows });
  input.value = value;
  return h("div.field", {}, h("label", { for: id }, label), input);
}

function streamed({ streams }) {
  return streams ? { stream: true, stream_options: { include_usage: true } } : {};
}

async function generate(answer, response, read) {
  let usage;
  const take = ({ choices, usage: told, error }) => {
    if (error) throw new Error(error.message);
    usage = told ?? usage;
    for (const choice of choices) {
      answer.write(choice.index, ...read(choice));
      if (choice.finish_reason) answer.ended(choice.index, choice.finish_reason);
    }
  };
  if (!response.headers.get("content-type").startsWith("text/event-stream")) {
    take(await response.json());
    return usage;
  }
  for await (const data of events(response)) {
    if (data === "[DONE]") break;
    take(JSON.parse(data));
  }
  return usage;
}

function example(sizes, datatype) {
  if (!sizes.length) return { BYTES: "A text.", BOOL: true }[datatype] ?? 1;
  return Array.from({ length: Math.min(sizes[0], 64) }, () => example(sizes.slice(1), datatype));
}

function shapeOf(data) {
  return Array.isArray(data) ? [data.length, ...shapeOf(data[0])] : [];
}

function cosine(left, right) {
  const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  return dot(left, right) / Math.sqrt(dot(left, left) * dot(right, right));
}

function shown(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(5) : String(value);
}
