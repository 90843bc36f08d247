/** Client of Shaperouter. */

export { Client, type ConnectOptions, type GenerateOptions, type Stubs } from "./client.js";
export { ShaperouterError, type Violation } from "./errors.js";
export * from "./generated/shaperouter/v1/generation.js";
