// A time series as SVG: lines, or areas on top of each other. The last point is at the right edge.

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 96;
const SECONDS = 600;

function shape(tag, attributes) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export class Chart {
  /** `series`: {name, className, value(point)}; `format` of a number; `stacked`: areas on top of each other. */
  constructor(host, { title, series, format, stacked = false }) {
    this.series = series;
    this.format = format;
    this.stacked = stacked;
    this.seconds = SECONDS;
    this.points = [];
    this.at = null;
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.top = document.createElement("span");
    this.top.className = "chart-top";
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.values = series.map(({ name, className }) => {
      const value = document.createElement("b");
      const key = document.createElement("i");
      key.className = `key ${className}`;
      const item = document.createElement("li");
      item.append(key, `${name} `, value);
      this.legend.append(item);
      return value;
    });
    const heading = document.createElement("h3");
    heading.textContent = title;
    const plot = document.createElement("div");
    plot.className = "plot";
    this.when = document.createElement("span");
    this.when.className = "chart-when";
    plot.append(this.svg, this.top, this.when);
    host.append(heading, plot, this.legend);
    this.title = title;
    plot.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.at = (event.clientX - box.left) / box.width;
      this.draw();
    });
    plot.addEventListener("pointerleave", () => {
      this.at = null;
      this.draw();
    });
  }

  show(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const { points, series } = this;
    const end = points.length ? points.at(-1)[0] : 0;
    this.seconds = Math.min(SECONDS, Math.max(60, points.length ? end - points[0][0] : 0));
    const x = (time) => WIDTH - ((end - time) / this.seconds) * WIDTH;
    const sum = (point) => series.reduce((total, { value }) => total + (value(point) || 0), 0);
    const most = points.reduce(
      (top, point) => Math.max(top, this.stacked ? sum(point) : Math.max(...series.map(({ value }) => value(point) || 0))),
      0,
    );
    const top = nice(most);
    const y = (value) => HEIGHT - 1 - (value / top) * (HEIGHT - 8);
    const drawn = [shape("line", { x1: 0, x2: WIDTH, y1: y(top), y2: y(top), class: "grid" })];
    drawn.push(shape("line", { x1: 0, x2: WIDTH, y1: y(top / 2), y2: y(top / 2), class: "grid" }));
    const base = points.map(() => 0);
    for (const { className, value } of series) {
      if (this.stacked) {
        const low = points.map((point, at) => `${x(point[0])},${y(base[at])}`).reverse();
        const high = points.map((point, at) => {
          base[at] += value(point) || 0;
          return `${x(point[0])},${y(base[at])}`;
        });
        if (points.length) drawn.push(shape("polygon", { points: [...high, ...low].join(" "), class: `area ${className}` }));
      } else {
        if (points.some((point) => value(point))) drawn.push(shape("path", { d: line(points, x, y, value), class: `line ${className}`, "vector-effect": "non-scaling-stroke" }));
      }
    }
    const shown = this.pointed(end);
    if (shown && this.at !== null) {
      drawn.push(shape("line", { x1: x(shown[0]), x2: x(shown[0]), y1: 0, y2: HEIGHT, class: "cursor", "vector-effect": "non-scaling-stroke" }));
    }
    this.svg.replaceChildren(...drawn);
    this.top.textContent = most ? this.format(top) : "";
    this.when.textContent = this.at !== null && shown ? ago(end - shown[0]) : "";
    series.forEach(({ value }, at) => {
      this.values[at].textContent = shown ? this.format(value(shown)) : "–";
    });
    const told = series.map(({ name, value }) => `${name} ${shown ? this.format(value(shown)) : "unknown"}`);
    this.svg.setAttribute("aria-label", `${this.title}: ${told.join(", ")}`);
  }

  /** The point under the pointer; the last one without. */
  pointed(end) {
    if (this.at === null) return this.points.at(-1);
    const time = end - (1 - this.at) * this.seconds;
    return this.points.reduce(
      (best, point) => (Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best),
      this.points[0],
    );
  }
}

function ago(seconds) {
  return seconds < 60 ? `${Math.round(seconds)} s ago` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s ago`;
}

/** A line that is interrupted where there is no value. */
function line(points, x, y, value) {
  let path = "";
  let up = true;
  for (const point of points) {
    const number = value(point);
    if (number === null || number === undefined) {
      up = true;
    } else {
      path += `${up ? "M" : "L"}${x(point[0]).toFixed(1)},${y(number).toFixed(1)}`;
      up = false;
    }
  }
  return path;
}

/** The smallest of 1, 2, 5, 10, 20 ... that is not below. */
function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999) || value;
}
