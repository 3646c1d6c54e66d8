// The feed of the scheduler: server-sent events, put together to what is so now.

import { dictionary } from "./format.js";

const KEPT = { decisions: 200, preemptions: 50, series: 600 };
const NOTHING = { labels: [], resources: [] };

/** Nodes by row, the sections as they are, and the last entries of the streams. */
export class Model {
  constructor() {
    this.nodes = new Map();
    this.leftOut = NOTHING;
    this.sections = {};
    this.decisions = [];
    this.preemptions = [];
    this.series = [];
    this.version = 0;
    this.moved = false;
    this.time = 0;
  }

  /** Whether nodes have changed since the last call. */
  movedNodes() {
    const moved = this.moved;
    this.moved = false;
    return moved;
  }

  snapshot(message) {
    this.nodes = nodesOf(message.nodes);
    this.leftOut = message.nodes.leftOut || NOTHING;
    this.moved = true;
    for (const name of Object.keys(KEPT)) this[name] = [];
    this.sections = {};
    this.take(message);
  }

  change(message) {
    const nodes = message.nodes;
    if (nodes) {
      this.moved = true;
      for (const object of nodes.objects || []) this.replace(object);
      (nodes.rows || []).forEach((row, at) => {
        const node = this.nodes.get(row);
        if (!node) return;
        node.requested = dictionary();
        for (const [name, column] of Object.entries(nodes.requested)) node.requested[name] = number(column, at);
      });
    }
    this.take(message);
  }

  replace([row, name, flags, labels, taints, allocatable]) {
    if (!name) {
      this.nodes.delete(row);
      return;
    }
    const known = this.nodes.get(row);
    const requested = known ? known.requested : dictionary();
    this.nodes.set(row, { name, flags, labels: dictionary(labels), taints, allocatable: dictionary(allocatable), requested });
  }

  take(message) {
    const { version, time, nodes, ...sections } = message;
    this.version = version;
    this.time = time;
    for (const [name, most] of Object.entries(KEPT)) {
      if (sections[name]) {
        this[name] = this[name].concat(sections[name]).slice(-most);
        delete sections[name];
      }
    }
    Object.assign(this.sections, sections);
  }
}

/** One number of a column, which is a number itself if all are equal. */
const number = (column, at) => (typeof column === "number" ? column : column[at]);

function nodesOf(columns) {
  const found = new Map();
  const value = ({ values, codes }, row) => (codes[row] ? values[codes[row] - 1] : undefined);
  columns.names.forEach((name, row) => {
    if (!name) return;
    const node = { name, flags: columns.flags[row], labels: dictionary(), allocatable: dictionary(), requested: dictionary() };
    node.taints = value(columns.taints, row) || [];
    for (const [key, column] of Object.entries(columns.labels)) {
      const label = value(column, row);
      if (label !== undefined) node.labels[key] = label;
    }
    for (const [key, column] of Object.entries(columns.allocatable)) node.allocatable[key] = number(column, row);
    for (const [key, column] of Object.entries(columns.requested)) node.requested[key] = number(column, row);
    found.set(row, node);
  });
  return found;
}

/** Follows the feed. `changed(model)` after each message, `problem(text)` when there is no connection; "" when there is again. */
export function follow(model, changed, problem) {
  const source = new EventSource("feed");
  source.addEventListener("snapshot", (event) => {
    model.snapshot(JSON.parse(event.data));
    problem("");
    changed(model);
  });
  source.addEventListener("change", (event) => {
    model.change(JSON.parse(event.data));
    problem("");
    changed(model);
  });
  source.addEventListener("problem", (event) => problem(JSON.parse(event.data).text));
  source.addEventListener("error", () => problem("The dashboard's own process does not answer. Is it still running?"));
}
