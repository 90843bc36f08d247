// Numbers as people read them.

const PREFIXES = ["", "k", "M", "G", "T"];

/** Seconds with their unit, in three digits. */
export function seconds(value) {
  if (!value) return "0 s";
  if (value < 1e-3) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  if (value < 120) return `${digits(value)} s`;
  if (value < 7200) return `${digits(value / 60)} min`;
  return `${digits(value / 3600)} h`;
}

/** A number in three digits, with a prefix if it is large. */
export function count(value) {
  let power = 0;
  while (Math.abs(value) >= 1000 && power < PREFIXES.length - 1) {
    value /= 1000;
    power += 1;
  }
  return `${digits(value)}${PREFIXES[power] ? ` ${PREFIXES[power]}` : ""}`;
}

/** Bytes with their unit. */
export function bytes(value) {
  const text = count(value);
  return text.includes(" ") ? `${text}B` : `${text} B`;
}

/** A fraction in per cent. */
export function percent(value) {
  return `${digits(100 * value)} %`;
}

/** A time of day. */
export function clock(unixSeconds) {
  return new Date(1000 * unixSeconds).toLocaleTimeString([], { hour12: false });
}

/** A number of things: `1 call`, `2 calls`. */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** The name that requests use for a model, from the worker's name of one of its revisions. */
export function publicName(model) {
  return model.split("@", 1)[0];
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  return String(Number(value.toPrecision(size >= 1 ? 3 : 2)));
}
