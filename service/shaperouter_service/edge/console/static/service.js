// Calls of the service, all on the port that served this page. The token of a client is kept in
// the tab's session, and goes nowhere but into the header of these calls.

const KEY = "shaperouter.token";
let listener = () => {};

/** An answer that is an error. */
export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** Sets what is called whenever a call is refused for want of a token. */
export function onUnauthenticated(callback) {
  listener = callback;
}

/**
 * Calls a path.
 *
 * @param {string} path The path, from the page's own address.
 * @param {object} options Those of fetch; `json` is a body.
 * @returns {Promise<Response>} The answer.
 * @throws {ServiceError} It is an error.
 */
export async function call(path, { json, headers = {}, ...options } = {}) {
  const given = { ...headers };
  if (token()) given.authorization = `Bearer ${token()}`;
  if (json !== undefined) {
    given["content-type"] = "application/json";
    options = { method: "POST", body: JSON.stringify(json), ...options };
  }
  const response = await fetch(path, { cache: "no-store", ...options, headers: given });
  if (response.ok) return response;
  if (response.status === 401) listener();
  throw new ServiceError(response.status, await reason(response));
}

/** Yields the data of a stream of server-sent events. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value.replaceAll("\r", "");
      const parts = rest.split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").filter((line) => line.startsWith("data:"));
        if (data.length) yield data.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function reason(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return typeof error === "string" ? error : error.message;
  } catch {
    return text || `${response.status} ${response.statusText}`;
  }
}
