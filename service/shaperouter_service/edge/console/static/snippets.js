// The request of the playground as a command or a program. Tokens are never part of it.

/** The forms in which a request can be copied. */
export const FORMS = { curl: "curl", openai: "openai", shaperouter: "shaperouter", grpc: "grpcurl" };

/**
 * The text of a request.
 *
 * @param {string} form One of FORMS.
 * @param {object} request Its path, its body, or the fields of its form.
 * @returns {string} The text; a comment if the form cannot express it.
 */
export function snippet(form, request) {
  return { curl, openai, shaperouter, grpc }[form](request);
}

function curl({ path, body, fields, secured }) {
  const auth = secured ? " \\\n  -H \"authorization: Bearer $SHAPEROUTER_TOKEN\"" : "";
  const url = new URL(path, document.baseURI.split("#")[0]);
  if (fields) return `curl -N ${url}${auth}${fields.map(([name, value]) => ` \\\n  -F ${shell(`${name}=${value}`)}`).join("")}`;
  return `curl -N ${url}${auth} \\\n  -H 'content-type: application/json' \\\n  -d ${shell(JSON.stringify(body, null, 1))}`;
}

function openai({ path, body, fields, secured }) {
  const resource = { "v1/completions": "completions", "v1/chat/completions": "chat.completions", "v1/embeddings": "embeddings", "v1/audio/transcriptions": "audio.transcriptions" }[path];
  if (!resource) return "# OpenAI's API has no functions: see curl";
  const key = secured ? 'os.environ["SHAPEROUTER_TOKEN"]' : '"none"';
  const head = `${secured ? "import os\n\n" : ""}from openai import OpenAI\n\nclient = OpenAI(base_url="${new URL("v1", document.baseURI.split("#")[0])}", api_key=${key})\n`;
  if (fields) return `${head}with open("recording.wav", "rb") as file:\n    print(client.audio.transcriptions.create(model=${python(fields[0][1])}, file=file).text)`;
  const known = ["model", "prompt", "messages", "input", "max_tokens", "n", "temperature", "top_p", "seed", "stop", "logit_bias", "logprobs", "top_logprobs", "stream", "stream_options"];
  const given = Object.entries(body);
  const extra = given.filter(([name]) => !known.includes(name));
  const lines = given.filter(([name]) => known.includes(name)).map(([name, value]) => `    ${name}=${python(value)},`);
  if (extra.length) lines.push(`    extra_body=${python(Object.fromEntries(extra))},`);
  const end = resource === "embeddings" ? "print(answer.data[0].embedding[:4])" : body.stream ? "for event in answer:\n    print(event.choices)" : "print(answer.choices)";
  return `${head}answer = client.${resource}.create(\n${lines.join("\n")}\n)\n${end}`;
}

function shaperouter({ path, model, body, fields, options = {}, secured }) {
  const token = secured ? ', token=os.environ["SHAPEROUTER_TOKEN"]' : "";
  const head = `${secured ? "import os\n\n" : ""}from shaperouter import Client\n\nwith Client("HOST:50051"${token}) as client:\n`;
  const more = Object.entries(options).map(([name, value]) => `, ${name}=${python(value)}`).join("");
  if (fields) return `${head}    print(client.transcribe("recording.wav", model=${python(model)}).text)`;
  if (path === "v1/completions") return `${head}    print(client.generate(${python(body.prompt)}, model=${python(model)}${more}).text)`;
  if (path === "v1/chat/completions") return `${head}    print(client.chat(${python(body.messages)}, model=${python(model)}${more}).text)`;
  if (path === "v1/embeddings") return `${head}    print(client.embed(${python(body.input)}, model=${python(model)}))`;
  const inputs = body.inputs.map(({ name, datatype, data }) => `${python(name)}: np.array(${python(data)}${NUMPY[datatype] ? `, np.${NUMPY[datatype]}` : ""})`);
  return `import numpy as np\n${head}    print(client.infer(${python(model)}, {${inputs.join(", ")}}).outputs)`;
}

function grpc({ path, model, body, options = {}, secured }) {
  const auth = secured ? " \\\n  -H \"authorization: Bearer $SHAPEROUTER_TOKEN\"" : "";
  const command = (method, message) => `grpcurl -plaintext${auth} \\\n  -d ${shell(JSON.stringify(message, null, 1))} \\\n  HOST:50051 shaperouter.v1.${method}`;
  if (path === "v1/completions") return command("GenerationService/GenerateStream", { model, text: body.prompt, options });
  if (path === "v1/chat/completions") return command("GenerationService/GenerateStream", { model, messages: body.messages, options });
  if (path === "v1/embeddings") return command("InferenceService/Infer", { model, inputs: [message({ name: "text", datatype: "BYTES", shape: [body.input.length], data: body.input })] });
  if (path.endsWith("/infer")) return command("InferenceService/Infer", { model, inputs: body.inputs.map(message) });
  return "# A recording is sent in many messages: see shaperouter";
}

/** A tensor as Protobuf's JSON has it. Throws if its type has no array in JavaScript. */
function message({ name, datatype, shape, data }) {
  const head = { name, dtype: `DATA_TYPE_${datatype}`, shape };
  const flat = [data].flat(Infinity);
  if (datatype === "BYTES") return { ...head, values: flat.map((text) => base64(new TextEncoder().encode(text))) };
  const kind = ARRAYS[datatype];
  if (!kind) throw new Error(`a tensor of ${datatype} has no short form: see shaperouter`);
  const elements = kind.from(flat, kind.name.startsWith("Big") ? BigInt : Number);
  return { ...head, content: base64(new Uint8Array(elements.buffer)) };
}

function base64(content) {
  return btoa(Array.from(content, (byte) => String.fromCharCode(byte)).join(""));
}

// All machines with browsers are little-endian, as these messages are.
const ARRAYS = {
  BOOL: Uint8Array, UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, UINT64: BigUint64Array,
  INT8: Int8Array, INT16: Int16Array, INT32: Int32Array, INT64: BigInt64Array, FP32: Float32Array, FP64: Float64Array,
};

const NUMPY = { FP32: "float32", FP64: "float64", INT32: "int32", INT64: "int64", BOOL: "bool_" };

function shell(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
