// Ladders fitted to the recorded traffic, beside those that the models have.

import { fill, h, svg, table } from "./dom.js";
import { percent, seconds } from "./format.js";
import { call } from "./service.js";

// The width of a drawing in its own units; it is stretched to the width of its place.
const WIDTH = 1000;

/** A part of the lattice that is filled when it is opened. */
export class Ladders {
  constructor(store) {
    this.store = store;
    this.body = h("div", { "aria-live": "polite" });
    this.element = h("details.ladders", { ontoggle: () => this.element.open && this.load() }, h("summary", {}, "Fitted ladders: which lengths would cost less"), this.body);
  }

  async load() {
    if (!this.store.client.operator) return fill(this.body, h("p.small", {}, "Only operators can see what is fitted to the traffic of all clients."));
    try {
      const response = await call("console/ladders");
      return fill(this.body, ...shown(await response.json()), h("p.buttons", {}, h("button", { type: "button", onclick: () => this.load() }, "Fit again")));
    } catch (error) {
      return fill(this.body, h("p.error", {}, error.message));
    }
  }
}

function shown({ has_record: hasRecord, models }) {
  if (!hasRecord) {
    return [h("p.small", {}, "This router cannot read what workers record: it runs apart from them, or without a compile cache (", h("code", {}, "--compile-cache"), "). On a machine with the cache of workers, ", h("code", {}, "shaperouterd ladder fit"), " shows the same.")];
  }
  const fitted = models.filter(({ ladders }) => ladders.length);
  if (!fitted.length) return [h("p.small", {}, "No device time is recorded yet. Workers save what they have served twice a minute.")];
  return fitted.flatMap(modelShown);
}

function modelShown({ model, recorded_seconds: recorded, is_thin: thin, cost_today: today, cost_fitted: fitted, ladders }) {
  return [
    h("h3", {}, model),
    h("p", {}, saving(today, fitted), h("small", {}, ` Padding and compilations, in ${seconds(recorded)} of recorded workers' time.`)),
    thin ? h("p.warning", {}, "Fewer than 100 requests are recorded: too few for a reliable ladder.") : null,
    ...ladders.map(drawn),
    table(
      `Ladders of ${model}`,
      ["", "Ladder", "Padding", "Compilations", "Total", "Rungs"],
      ladders.flatMap(({ title, ...both }) =>
        ["today", "fitted"].map((which) => {
          const { padding_share: share, padding_seconds: padding, compile_seconds: compiling, cost, rungs } = both[which];
          return [which === "today" ? title : "", which, `${seconds(padding)} (${percent(share)})`, seconds(compiling), seconds(cost), rungs.join(" ")];
        }),
      ),
    ),
  ];
}

function saving(today, fitted) {
  if (fitted >= today) return `Today's ladders cost ${seconds(today)}, and no other would cost less.`;
  return `The fitted ladders would save ${seconds(today - fitted)} of ${seconds(today)} (${percent(1 - fitted / today)}).`;
}

/** Both ladders on one scale, on which equal ratios have equal widths. */
function drawn({ title, today, fitted }) {
  const all = [...today.rungs, ...fitted.rungs];
  const [low, high] = [Math.log(Math.min(...all)), Math.log(Math.max(...all))];
  const at = (rung) => 6 + ((WIDTH - 12) * (Math.log(rung) - low)) / (high - low || 1);
  const ticks = (rungs, name, top) => rungs.map((rung) => svg("line", { class: name, x1: at(rung), x2: at(rung), y1: top, y2: top + 12 }));
  return h(
    "p.ladder",
    {},
    h("span", {}, title),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} 30`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: today ${today.rungs.join(" ")}; fitted ${fitted.rungs.join(" ")}` },
      ...ticks(today.rungs, "today", 1),
      ...ticks(fitted.rungs, "fitted", 17),
    ),
  );
}
