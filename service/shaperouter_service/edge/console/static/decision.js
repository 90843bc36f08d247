// What the router decided about a request, and what served it.

import { h, table } from "./dom.js";
import { count, seconds } from "./format.js";

/** The decision about the first run of a request, its graphs, and what happened to its workers. */
export function explained(request) {
  const [options = []] = request.routes ?? [];
  const parts = [];
  if (request.lost_workers?.length) {
    parts.push(h("p.warning", {}, `Lost while it ran: ${request.lost_workers.join(", ")}. It went on from its tokens.`));
  }
  if (request.error) parts.push(h("p.error", {}, request.error));
  if (options.length) {
    const rows = options.map((option, index) => [
      index === 0 ? `${option.worker} (taken)` : option.worker,
      option.graphs.join(", "),
      seconds(option.queue_seconds),
      seconds(option.stall_seconds),
      seconds(option.device_seconds),
      seconds(option.total_seconds) + (option.informed ? "" : " ?"),
    ]);
    parts.push(
      h("h3", {}, "What the router expected"),
      table("Options of the router", ["Worker", "Graphs", "Queue", "Stall", "Device", "Total"], rows),
      options.every((option) => option.informed) ? null : h("p.small", {}, "? has estimates that no measurement backs yet."),
    );
  }
  if (request.graphs?.length) {
    const rows = request.graphs.map((use) => [use.asked, use.asked === use.served ? "the same" : use.served, count(use.calls), seconds(use.device_seconds)]);
    parts.push(h("h3", {}, "What served it"), table("Graphs that served it", ["Asked for", "Served by", "Calls", "Device time"], rows));
  }
  return h("div.explained", {}, ...(parts.length ? parts : [h("p.small", {}, "The router has not decided about it.")]));
}

// The parts of a request's time, in their order.
export const PARTS = [
  ["route", "routed", "tokenized, checked and routed"],
  ["queue", "queued", "waiting for a slot"],
  ["stall", "stalled", "waiting for a compilation"],
  ["read", "read", "reading the prompt, up to the first token"],
  ["decode", "decoded", "generating, or computing a call"],
  ["other", "other", "not accounted for"],
];

/** The seconds of each part of a request. */
export function parts(request) {
  const found = {
    route: request.route_seconds ?? 0,
    queue: request.queue_seconds ?? 0,
    stall: request.stall_seconds ?? 0,
    read: request.prefill_seconds ?? 0,
    decode: (request.decode_seconds ?? 0) + (request.device_seconds ?? 0),
  };
  const sum = Object.values(found).reduce((total, each) => total + each, 0);
  return { ...found, other: Math.max(0, (request.total_seconds ?? 0) - sum) };
}
