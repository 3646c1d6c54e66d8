// The dashboard: draws what the feed says, and opens nodes and pods.

import { Chart } from "./chart.js";
import { ClusterMap } from "./cluster.js";
import { showNode, showPod } from "./detail.js";
import { Model, follow } from "./feed.js";
import { setUp } from "./whatif.js";
import { age, amount, bar, clock, count, dictionary, duration, element, percent, rate, shortName } from "./format.js";

const ZONE = "topology.kubernetes.io/zone";
const BEST_LABELS = [ZONE, "topology.kubernetes.io/region", "node.kubernetes.io/instance-type", "kubernetes.io/arch"];
const QUEUES = [
  ["active", "q-active", "being tried or about to be"],
  ["backoff", "q-backoff", "pausing after a failure"],
  ["unschedulable", "q-unschedulable", "waiting for a change of the cluster"],
  ["gated", "q-gated", "held back by a scheduling gate"],
];
const RESULTS = {
  bound: ["✓", "good", "bound"],
  unschedulable: ["⊘", "warning", "no node fits"],
  error: ["✗", "bad", "error"],
};
const SILENT_SECONDS = 4;

const at = (id) => document.getElementById(id);
const model = new Model();
let group = "";
let fill = "cpu";
let heard = 0;
let trouble = "";
let drawn = false;
let whatif = null;

// ---------------------------------------------------------------- nodes

const share = (node, resource) => {
  const all = node.allocatable[resource] || 0;
  const used = node.requested[resource] || 0;
  return all ? used / all : used ? 1 : 0;
};

const map = new ClusterMap(
  at("map"),
  {
    name: (node) => node.name,
    share: (node) => share(node, fill),
    before: null,
    flags: (node) => node.flags,
    title: nodeTitle,
  },
  (node) => openNode(node.name),
);

function nodeTitle(node) {
  const lines = [node.name];
  for (const resource of shownResources(node)) {
    const all = node.allocatable[resource] || 0;
    const used = node.requested[resource] || 0;
    lines.push(`${shortName(resource)} ${amount(resource, used)} of ${amount(resource, all)} (${percent(share(node, resource))})`);
  }
  if (node.flags & 1) lines.push("unschedulable");
  if (node.flags & 2) lines.push("no Node object");
  for (const [key, value, effect] of node.taints || []) lines.push(`taint ${key}${value ? `=${value}` : ""}:${effect}`);
  return lines.join("\n");
}

function shownResources(node) {
  const others = Object.keys(node.allocatable).filter((name) => !["cpu", "memory", "pods"].includes(name) && node.allocatable[name]);
  return ["cpu", "memory", "pods", ...others.filter((name) => name !== "ephemeral-storage" || node.requested[name])];
}

function totals(nodes) {
  const found = dictionary();
  for (const node of nodes) {
    for (const [name, all] of Object.entries(node.allocatable)) {
      const sum = (found[name] ||= { all: 0, used: 0, most: 0 });
      const used = node.requested[name] || 0;
      sum.all += all;
      sum.used += used;
      if (!(node.flags & 1)) sum.most = Math.max(sum.most, all - used);
    }
  }
  return found;
}

function describe(nodes) {
  const sum = totals(nodes)[fill];
  const text = nodes.length === 1 ? "1 node" : `${count(nodes.length)} nodes`;
  if (!sum || !sum.all) return text;
  const free = amount(fill, Math.max(0, sum.all - sum.used));
  return `${text} · ${percent(sum.used / sum.all)} · ${free} free, ${amount(fill, Math.max(0, sum.most))} on one node`;
}

const leftOut = (names) => (names.length ? `Not shown: ${names.join(", ")}${names.length < 20 ? "" : " and perhaps more"}` : "");

function drawCluster() {
  const nodes = [...model.nodes.values()];
  at("no-nodes").hidden = nodes.length > 0;
  const labels = new Map();
  const resources = new Set(["cpu", "memory", "pods"]);
  for (const node of nodes) {
    for (const [key, value] of Object.entries(node.labels)) {
      if (!labels.has(key)) labels.set(key, new Set());
      if (labels.get(key).size <= 64) labels.get(key).add(value);
    }
    for (const name of Object.keys(node.allocatable)) if (node.allocatable[name]) resources.add(name);
  }
  const keys = [...labels.keys()].filter((key) => labels.get(key).size <= 64);
  const known = BEST_LABELS.filter((key) => keys.includes(key));
  const choices = [...known, ...keys.filter((key) => !known.includes(key)).sort()];
  if (!drawn || (group === "" && !at("group-by").dataset.chosen)) group = choices[0] || "";
  options(at("group-by"), [...choices, ""], group, (key) => key || "nothing");
  options(at("fill-by"), [...resources], fill, (name) => name);
  at("group-by").title = leftOut(model.leftOut.labels);
  at("fill-by").title = leftOut(model.leftOut.resources);
  const empty = at("group-by").selectedIndex;
  if (empty < 0) group = "";
  map.show(nodes, groupOf, describe);
  if (whatif) whatif.draw();
  const closed = nodes.filter((node) => node.flags & 1).length;
  at("cluster-count").textContent = `${count(nodes.length)} nodes${closed ? `, ${count(closed)} unschedulable` : ""} · ${count(podsOn(nodes))} pods`;
}

const groupOf = (node) => (group ? node.labels[group] || `no ${group}` : "all nodes");

const podsOn = (nodes) => nodes.reduce((sum, node) => sum + (node.requested.pods || 0), 0);

function options(select, values, chosen, text) {
  const key = values.join("\n");
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...values.map((value) => element("option", { value }, text(value))));
  }
  if (select.value !== chosen) select.value = chosen;
}

// ---------------------------------------------------------------- the three answers

function drawHealth() {
  const { scheduler, health = [], rates } = model.sections;
  const failed = health.filter(([, problem, fatal]) => problem && fatal);
  const degraded = health.filter(([, problem, fatal]) => problem && !fatal);
  let [sign, className, text] = ["✓", "good", "Healthy"];
  if (trouble) [sign, className, text] = ["✗", "bad", "Not connected"];
  else if (!scheduler.leading) [sign, className, text] = ["‖", "warning", "Standby"];
  else if (failed.length) [sign, className, text] = ["✗", "bad", "Not ready"];
  else if (degraded.length) [sign, className, text] = ["▲", "warning", "Degraded"];
  put(at("verdict"), text, () => [element("span", { class: `sign ${className}`, "aria-hidden": "true" }, `${sign} `), element("span", {}, text)]);
  const who = scheduler.leading ? `${scheduler.identity || "this process"} leads` : `${scheduler.holder || "no process"} leads, this process waits`;
  at("who").textContent = `${who} · ${scheduler.profiles.join(", ")} · ${scheduler.version}`;
  const attempts = Object.values(rates.perSecond).reduce((sum, each) => sum + each, 0);
  at("f-rate").textContent = rate(attempts);
  at("f-p50").textContent = duration(rates.attempt[0]);
  at("f-p99").textContent = duration(rates.attempt[1]);
  const lines = [...failed, ...degraded].map(([name, problem, fatal]) => element("li", { class: fatal ? "fatal" : "" }, `${name}: ${problem}`));
  const rejected = Object.entries(model.sections.kubeletRejections || {}).map(([reason, number]) => `${reason} ${count(number)}`);
  if (rejected.length) lines.push(element("li", {}, `pods that kubelets rejected: ${rejected.join(", ")}`));
  put(at("checks"), lines.map((line) => line.textContent).join("\n"), () => lines);
}

const inQueue = (queue, name) =>
  ({
    active: queue.active + queue.in_flight,
    backoff: queue.backoff + queue.error_backoff,
    unschedulable: queue.unschedulable,
    gated: queue.gated,
  })[name];

function drawWaiting() {
  const { queue, reasons = [] } = model.sections;
  const counts = QUEUES.map(([name, className, about]) => ({ name, className, about, pods: inQueue(queue, name) }));
  const all = counts.reduce((sum, { pods }) => sum + pods, 0);
  put(at("waiting-count"), String(all), () => (all ? [count(all), element("small", {}, all === 1 ? " pod waits" : " pods wait")] : ["Nothing waits"]));
  put(at("split"), JSON.stringify(counts), () =>
    counts.filter(({ pods }) => pods).map(({ className, pods, name }) => {
      const part = element("span", { class: className, title: `${name}: ${count(pods)}` });
      part.style.flexGrow = pods;
      return part;
    }),
  );
  put(at("split-legend"), JSON.stringify(counts), () =>
    counts.map(({ name, className, pods, about }) => element("li", { title: about }, element("i", { class: `key ${className}` }), `${name} `, element("b", {}, count(pods)))),
  );
  at("split").setAttribute("aria-label", counts.map(({ name, pods }) => `${name} ${pods}`).join(", "));
  const line = ([text, pods]) => element("li", {}, element("b", {}, count(pods)), element("span", { title: text }, text));
  put(at("top-reasons"), JSON.stringify(reasons.slice(0, 2)), () => reasons.slice(0, 2).map(line));
  put(at("reasons"), JSON.stringify(reasons), () => reasons.map(line));
  at("no-reasons").hidden = reasons.length > 0;
}

function drawRoom() {
  const sums = totals(model.nodes.values());
  const names = ["cpu", "memory", "pods", ...Object.keys(sums).filter((name) => !["cpu", "memory", "pods", "ephemeral-storage"].includes(name))]
    .filter((name) => sums[name] && sums[name].all)
    .slice(0, 6);
  const used = (name) => sums[name].used / sums[name].all;
  const usual = names.filter((name) => ["cpu", "memory", "pods"].includes(name));
  const tight = usual.reduce((most, name) => (most && used(most) >= used(name) ? most : name), "");
  const full = names.filter((name) => name !== tight && used(name) >= 0.9).map(shortName);
  const verdict = tight ? `${percent(Math.max(0, 1 - used(tight)))} of ${tight} is free` : "No nodes";
  const more = full.length ? ` ▲ ${full.join(", ")} ${full.length > 1 ? "are" : "is"} full` : "";
  put(at("room-verdict"), verdict + more, () => [verdict, more ? element("small", { class: "warning" }, more) : ""]);
  const rows = names.map((name) => [name, sums[name]]);
  put(at("room"), JSON.stringify(rows), () =>
    rows.map(([name, { all, used }]) => {
      const told = `${name}: ${amount(name, used)} of ${amount(name, all)} requested`;
      const free = `${amount(name, Math.max(0, all - used))} free`;
      return element("div", { title: told }, element("span", {}, shortName(name)), bar(used / all, told), element("span", {}, free));
    }),
  );
}

// ---------------------------------------------------------------- tables

/** Replaces the children if the key has changed, so that selections and scroll positions stay. */
function put(host, key, children) {
  if (host.dataset.key === key) return;
  host.dataset.key = key;
  host.replaceChildren(...children());
}

const podLink = (key) => element("button", { class: "link", type: "button", title: key, onclick: () => openPod(key) }, key);
const nodeLink = (name) => element("button", { class: "link", type: "button", title: name, onclick: () => openNode(name) }, name);

function drawDecisions() {
  const shown = model.decisions.slice(-100).reverse();
  at("no-decisions").hidden = shown.length > 0;
  at("decision-list").parentElement.hidden = !shown.length;
  put(at("decision-list"), JSON.stringify(shown[0] || "") + shown.length, () =>
    shown.map(([time, pod, result, node, seconds, attempts, message]) => {
      const [sign, className, told] = RESULTS[result] || ["?", "", result];
      const after = attempts > 1 ? `, attempt ${attempts}` : "";
      const where = result === "bound" ? ["on ", nodeLink(node), after] : [message || told, node ? ` (nominated: ${node})` : ""];
      return element(
        "li",
        {},
        element("time", {}, clock(time)),
        element("span", { class: className, role: "img", "aria-label": told, title: told }, sign),
        podLink(pod),
        element("span", { class: "took" }, duration(seconds)),
        element("span", { class: "where", title: message || "" }, ...where),
      );
    }),
  );
  const more = model.sections.omitted;
  at("decisions-note").textContent = more ? `and ${count(more)} more at once` : "";
}

function drawQueueTables() {
  const waiting = model.sections.waiting || [];
  at("no-waiting").hidden = waiting.length > 0;
  at("waiting").hidden = !waiting.length;
  const body = at("waiting").tBodies[0];
  put(body, JSON.stringify(waiting), () =>
    waiting.map((each) =>
      element(
        "tr",
        { title: each.message },
        element("td", {}, podLink(each.pod)),
        element("td", {}, each.place + (each.nominated ? `, nominated: ${each.nominated}` : "")),
        element("td", { class: "n", "data-since": each.since }),
        element("td", { class: "n" }, count(each.attempts)),
        element("td", { class: "n" }, count(each.priority)),
      ),
    ),
  );
  for (const cell of body.querySelectorAll("[data-since]")) {
    const text = age(model.time - cell.dataset.since);
    if (cell.textContent !== text) cell.textContent = text;
  }
}

function drawExtenders() {
  const { extenders = [] } = model.sections;
  at("no-extenders").hidden = extenders.length > 0;
  at("extender-table").hidden = !extenders.length;
  const states = { closed: ["✓ closed", "good"], open: ["✗ open: not called", "bad"], half_open: ["▲ half open: trying one call", "warning"] };
  put(at("extender-table").tBodies[0], JSON.stringify(extenders), () =>
    extenders.map((each) => {
      const [text, className] = states[each.breaker] || [each.breaker, ""];
      const calls = Object.values(each.outcomes).reduce((sum, number) => sum + number, 0);
      const failures = Object.entries(each.outcomes).filter(([name]) => name !== "success");
      const failed = failures.reduce((sum, [, number]) => sum + number, 0);
      return element(
        "tr",
        {},
        element("td", {}, each.extender),
        element("td", {}, each.verb),
        element("td", { class: className }, text),
        element("td", { class: "n" }, count(each.inFlight)),
        element("td", { class: "n" }, each.limit ? count(each.limit) : "–"),
        element("td", { class: "n" }, duration(each.latency[0])),
        element("td", { class: "n" }, duration(each.latency[1])),
        element("td", { class: "n" }, count(calls)),
        element("td", { class: failed ? "n bad" : "n", title: failures.map((pair) => pair.join(": ")).join(", ") }, failed ? `${count(failed)} ✗` : "0"),
        element("td", { class: "n" }, count(each.dropped)),
      );
    }),
  );
}

function drawPreemptions() {
  const shown = model.preemptions.slice().reverse();
  at("no-preemptions").hidden = shown.length > 0;
  at("preemption-table").hidden = !shown.length;
  put(at("preemption-table").tBodies[0], JSON.stringify(shown[0] || "") + shown.length, () =>
    shown.map(([time, pod, node, victims, number]) => {
      const links = victims.flatMap((victim, i) => (i ? [", ", podLink(victim)] : [podLink(victim)]));
      const more = number > victims.length ? `, and ${count(number - victims.length)} more` : "";
      return element("tr", {}, element("td", {}, clock(time)), element("td", {}, podLink(pod)), element("td", {}, node ? nodeLink(node) : "–"), element("td", {}, ...links, more));
    }),
  );
}

const charts = [
  new Chart(at("c-queue"), {
    title: "Waiting pods",
    stacked: true,
    format: count,
    series: [
      { name: "unschedulable", className: "q-unschedulable", value: (point) => point[3] },
      { name: "gated", className: "q-gated", value: (point) => point[4] },
      { name: "backoff", className: "q-backoff", value: (point) => point[2] },
      { name: "active", className: "q-active", value: (point) => point[1] },
    ],
  }),
  new Chart(at("c-rate"), {
    title: "Attempts a second",
    format: rate,
    series: [
      { name: "scheduled", className: "l-first", value: (point) => point[5] },
      { name: "unschedulable", className: "l-second", value: (point) => point[6] },
      { name: "error", className: "l-third", value: (point) => point[7] },
    ],
  }),
  new Chart(at("c-latency"), {
    title: "Latency of attempts",
    format: duration,
    series: [
      { name: "p50", className: "l-first", value: (point) => point[8] },
      { name: "p99", className: "l-second", value: (point) => point[9] },
    ],
  }),
];

// ---------------------------------------------------------------- drawing

let scheduled = false;

function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (!model.version) return;
    drawHealth();
    drawWaiting();
    if (model.movedNodes()) {
      drawRoom();
      drawCluster();
    }
    drawDecisions();
    drawQueueTables();
    drawExtenders();
    drawPreemptions();
    for (const chart of charts) chart.show(model.series);
    if (!drawn) performance.mark("first-paint-of-the-feed");
    drawn = true;
    document.documentElement.dataset.version = model.version;
  });
}

function banner() {
  const standby = model.version && !model.sections.scheduler.leading;
  const silent = heard && performance.now() - heard > SILENT_SECONDS * 1000;
  let text = trouble;
  if (!text && silent) text = `No data for ${age((performance.now() - heard) / 1000)}.`;
  if (!text && standby) text = `This process is on standby and schedules nothing; ${model.sections.scheduler.holder || "no process"} leads.`;
  const host = at("banner");
  host.hidden = !text;
  host.classList.toggle("mild", Boolean(standby && !trouble));
  if (host.textContent !== text) host.textContent = text;
}

follow(
  model,
  () => {
    heard = performance.now();
    redraw();
    banner();
  },
  (text) => {
    if (text !== trouble) {
      trouble = text;
      if (text && !model.version) put(at("verdict"), "Not connected", () => [element("span", { class: "sign bad" }, "✗ "), "Not connected"]);
      redraw();
    }
    banner();
  },
);
setInterval(banner, 1000);
new ResizeObserver(() => model.version && map.draw()).observe(at("map").parentElement);
new MutationObserver(() => model.version && map.draw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// ---------------------------------------------------------------- opening

let opener = null;
let refresh = null;

function open(title, path, show) {
  const aside = at("detail");
  if (aside.hidden) opener = document.activeElement;
  aside.hidden = false;
  at("detail-title").textContent = title;
  at("detail-body").replaceChildren(element("p", { class: "note" }, "Asking …"));
  aside.focus();
  clearInterval(refresh);
  let last = "";
  const ask = async () => {
    try {
      const answer = await fetch(path);
      const text = await answer.text();
      if (at("detail-title").textContent !== title || text === last) return;
      last = text;
      const body = answer.ok ? show(JSON.parse(text), { podLink, nodeLink }) : [element("p", { class: "empty" }, text)];
      at("detail-body").replaceChildren(...body);
    } catch (error) {
      at("detail-body").replaceChildren(element("p", { class: "empty" }, String(error)));
    }
  };
  ask();
  refresh = setInterval(ask, 2000);
}

function openNode(name) {
  const node = [...model.nodes.values()].find((each) => each.name === name);
  if (node) map.select(node, false);
  open(name, `nodes/${encodeURIComponent(name)}`, showNode);
}

function openPod(text) {
  const key = text.includes("/") ? text : `default/${text}`;
  const [namespace, name] = key.split("/", 2);
  const asking = (text, copies) => element("button", { type: "button", onclick: () => askAbout(key, copies) }, text);
  open(key, `pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, (told, links) => [
    element("p", { class: "bar-line" }, asking("Ten more of this one?", 10), ...(told.node ? [] : [asking("What must change?", null)])),
    ...showPod(told, links),
  ]);
}

function askAbout(pod, copies) {
  close();
  go(sections.indexOf("whatif"));
  whatif.fits(pod, copies);
}

function close() {
  if (at("detail").hidden) return false;
  at("detail").hidden = true;
  clearInterval(refresh);
  if (opener && opener.isConnected) opener.focus();
  return true;
}

at("close").addEventListener("click", close);
at("pod-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = at("pod-name").value.trim();
  if (name) openPod(name);
});

// ---------------------------------------------------------------- finding

whatif = setUp({
  map,
  nodes: () => [...model.nodes.values()],
  share,
  title: nodeTitle,
  fill: () => fill,
  groupOf,
  describe,
  nodeLink,
  openNode,
});

const search = at("search");

function suggest(text) {
  const pods = new Set();
  for (const [, pod] of model.decisions) pods.add(pod);
  for (const { pod } of model.sections.waiting || []) pods.add(pod);
  const nodes = [...model.nodes.values()].map((node) => node.name);
  const found = [...[...pods].reverse(), ...nodes].filter((name) => name.includes(text)).slice(0, 30);
  put(at("known"), found.join("\n"), () => found.map((value) => element("option", { value })));
}

search.addEventListener("input", () => {
  const text = search.value.trim();
  map.filter = text && !text.includes("/") ? (node) => node.name.includes(text) : null;
  if (![...model.nodes.values()].some((node) => map.filter && map.filter(node))) map.filter = null;
  map.draw();
  suggest(text);
});
at("pod-name").addEventListener("input", () => suggest(at("pod-name").value.trim()));
at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = search.value.trim();
  if (!text) return;
  if ([...model.nodes.values()].some((node) => node.name === text)) openNode(text);
  else openPod(text);
});

// ---------------------------------------------------------------- choices and keys

at("group-by").addEventListener("change", (event) => {
  group = event.target.value;
  event.target.dataset.chosen = "yes";
  drawCluster();
});
at("fill-by").addEventListener("change", (event) => {
  fill = event.target.value;
  drawCluster();
});

function nextOption(select) {
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event("change"));
}

function turnTheme() {
  const wanted = window.theme.turn();
  at("theme").setAttribute("aria-label", `Theme: ${wanted === "system" ? "as the system" : wanted}`);
  at("theme").textContent = { system: "◐", dark: "●", light: "○" }[wanted];
}

at("theme").addEventListener("click", turnTheme);
at("help").addEventListener("click", () => at("keys").showModal());

const sections = [...document.querySelectorAll("nav a")].map((link) => link.getAttribute("href").slice(1));

function go(number) {
  const section = at(sections[number]);
  section.scrollIntoView({ block: "start" });
  const inside = { cluster: at("map"), pod: at("pod-name"), whatif: at("manifest") }[section.id] || section;
  inside.focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape") {
    if (typing && search.value) {
      search.value = "";
      search.dispatchEvent(new Event("input"));
    }
    if (typing) event.target.blur();
    else close();
    return;
  }
  if (typing) return;
  if (event.key >= "1" && event.key <= "7") go(Number(event.key) - 1);
  else if (event.key === "/") search.focus();
  else if (event.key === "?") at("keys").showModal();
  else if (event.key === "t") turnTheme();
  else if (event.key === "g") nextOption(at("group-by"));
  else if (event.key === "f") nextOption(at("fill-by"));
  else if (event.key === "d" && document.activeElement === at("map") && map.selected) whatif.toggle(map.selected.name);
  else return;
  event.preventDefault();
});
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    go(sections.indexOf(link.getAttribute("href").slice(1)));
  });
}
