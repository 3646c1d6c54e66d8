// Texts for numbers, amounts of resources, times and durations; and a helper that builds elements.

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const SHORT = new Map([
  ["memory", "mem"],
  ["ephemeral-storage", "disk"],
]);

/** Values by names of others: it has nothing but these, not even a `constructor`. */
export function dictionary(values = {}) {
  return Object.assign(Object.create(null), values);
}

export function count(number) {
  return Number(number || 0).toLocaleString("en-US");
}

export function isBytes(resource) {
  return resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-");
}

/** An amount in the scheduler's units: thousandths of a CPU, bytes, or whole devices. */
export function amount(resource, units) {
  if (resource === "cpu") return trimmed(units / 1000);
  if (!isBytes(resource)) return count(units);
  let value = units;
  let step = 0;
  while (Math.abs(value) >= 1024 && step < BINARY.length - 1) {
    value /= 1024;
    step += 1;
  }
  return trimmed(value) + BINARY[step];
}

function trimmed(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return Number(value.toFixed(digits)).toLocaleString("en-US");
}

export function shortName(resource) {
  return SHORT.get(resource) || resource.split("/").pop();
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return age(seconds);
}

export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function rate(perSecond) {
  if (!perSecond) return "0";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

/** An element; children are elements or texts. Texts are never parsed as HTML. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A bar that shows a share by its length, with hatching from 90 % on. */
export function bar(share, label) {
  const full = share >= 0.9;
  const fill = element("span", { class: full ? "bar-fill full" : "bar-fill" });
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return element("span", { class: "bar", role: "img", "aria-label": label }, fill);
}
