// The page of a simulation: nodes before and after, by zone, with a filter that also applies to the tables.

import { ClusterMap } from "./cluster.js";
import { amount, count, dictionary, element, percent, shortName } from "./format.js";

const nodes = JSON.parse(document.getElementById("nodes").textContent).map((node) => ({ ...node, resources: dictionary(node.resources) }));
const find = (id) => document.getElementById(id);
let resource = "cpu";
let byZone = true;
let after = true;

function use(node, name) {
  return node.resources[name] || { allocatable: 0, before: 0, after: 0 };
}

function part(used, all) {
  return all ? used / all : used ? 1 : 0;
}

function changes({ before, after: end }, all) {
  const from = percent(part(before, all));
  return before === end ? from : `${from} → ${percent(part(end, all))}`;
}

const drawing = new ClusterMap(
  find("map"),
  {
    name: (node) => node.name,
    share: (node) => part(after ? use(node, resource).after : use(node, resource).before, use(node, resource).allocatable),
    before: (node) => part(use(node, resource).before, use(node, resource).allocatable),
    flags: () => 0,
    title(node) {
      const lines = Object.entries(node.resources)
        .filter(([, each]) => each.allocatable || each.after)
        .map(([name, each]) => `${shortName(name)} ${changes(each, each.allocatable)} of ${amount(name, each.allocatable)}`);
      return [`${node.name} (${node.zone})`, ...lines].join("\n");
    },
  },
  (node) => {
    find("filter").value = node.name;
    filter();
  },
);

function describe(members) {
  const sum = { allocatable: 0, before: 0, after: 0 };
  for (const node of members) for (const key of Object.keys(sum)) sum[key] += use(node, resource)[key];
  const text = members.length === 1 ? "1 node" : `${count(members.length)} nodes`;
  const free = Math.max(0, sum.allocatable - (after ? sum.after : sum.before));
  return `${text} · ${changes(sum, sum.allocatable)} · ${amount(resource, free)} free`;
}

function show() {
  drawing.show(nodes, (node) => (byZone ? (node.zone === "?" ? "no zone" : node.zone) : "all nodes"), describe);
}

function filter() {
  const text = find("filter").value.trim().toLowerCase();
  const matches = (node) => node.name.toLowerCase().includes(text) || node.zone.toLowerCase() === text;
  drawing.filter = text && nodes.some(matches) ? matches : null;
  drawing.draw();
  for (const row of document.querySelectorAll("tbody tr")) {
    row.hidden = Boolean(text) && !row.textContent.toLowerCase().includes(text);
  }
  for (const each of document.querySelectorAll("details")) {
    if (text) each.open = [...each.querySelectorAll("tbody tr")].some((row) => !row.hidden);
  }
}

const names = [...new Set(nodes.flatMap((node) => Object.keys(node.resources).filter((name) => use(node, name).allocatable)))];
find("resource").replaceChildren(...names.map((name) => element("option", { value: name, selected: name === resource }, name)));
find("resource").addEventListener("change", (event) => {
  resource = event.target.value;
  show();
});
find("by").addEventListener("change", (event) => {
  byZone = event.target.value === "zone";
  show();
});
find("when").addEventListener("change", (event) => {
  after = event.target.value === "after";
  show();
});
find("filter").addEventListener("input", filter);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select")) {
    find("filter").focus();
    event.preventDefault();
  } else if (event.key === "Escape") {
    find("filter").value = "";
    filter();
  }
});
new ResizeObserver(() => drawing.draw()).observe(find("map").parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing.draw());
show();
