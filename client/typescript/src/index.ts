/** Client of Shaperouter. */

export {
  type CallOptions,
  type ConnectOptions,
  type GenerateOptions,
  type Stubs,
  Client,
} from "./client.js";
export { ShaperouterError, type Violation } from "./errors.js";
export * from "./generated/shaperouter/v1/generation.js";
// The messages of the other stubs. Namespaces keep their many names apart from those above.
export * as graph from "./generated/shaperouter/v1/graph.js";
export * as inference from "./generated/shaperouter/v1/inference.js";
export * as model from "./generated/shaperouter/v1/model.js";
export * as signature from "./generated/shaperouter/v1/signature.js";
export * as transcription from "./generated/shaperouter/v1/transcription.js";
