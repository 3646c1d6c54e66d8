// One node with its pods, and one pod's story (what `explain` tells).

import { age, amount, bar, clock, count, dictionary, duration, element, percent, shortName } from "./format.js";

const heading = (text) => element("h3", {}, text);

function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function table(columns, rows) {
  const head = columns.map(([name, className]) => element("th", { class: className || "" }, name));
  const body = rows.map((cells) => element("tr", {}, ...cells.map((cell, i) => element("td", { class: columns[i][1] || "" }, cell))));
  return element("div", { class: "scroll-x" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
}

const requests = (amounts) =>
  Object.entries(amounts)
    .filter(([, units]) => units)
    .map(([name, units]) => `${shortName(name)} ${amount(name, units)}`)
    .join(", ") || "–";

export function showNode({ node, pods }, { podLink }) {
  const names = Object.keys(node.allocatable).filter((name) => node.allocatable[name]);
  const requested = dictionary(node.requested);
  const used = (name) => (name === "pods" ? pods.length : requested[name] || 0);
  const bars = names.map((name) => {
    const told = `${amount(name, used(name))} of ${amount(name, node.allocatable[name])}`;
    const share = used(name) / node.allocatable[name];
    return element("div", { title: name }, element("span", {}, shortName(name)), bar(share, `${name}: ${told}`), element("span", {}, told));
  });
  const taints = node.taints.map(({ key, value, effect }) => `${key}${value ? `=${value}` : ""}:${effect}`);
  const state = !node.exists ? "There is no Node object of this name." : node.unschedulable ? "Unschedulable." : "";
  return [
    ...(state ? [element("p", { class: "warning" }, `▲ ${state}`)] : []),
    element("div", { class: "room" }, ...bars),
    ...(taints.length ? [heading("Taints"), element("ul", { class: "tags" }, ...taints.map((text) => element("li", {}, text)))] : []),
    heading(`${count(pods.length)} ${pods.length === 1 ? "pod" : "pods"}`),
    pods.length
      ? table(
          [["pod"], ["requests"], ["priority", "n"], ["phase"]],
          pods.map((pod) => [podLink(pod.pod), requests(pod.requests), count(pod.priority), pod.terminating ? "terminating" : pod.phase || "–"]),
        )
      : element("p", { class: "empty" }, "No pods."),
    heading("Labels"),
    element("ul", { class: "tags" }, ...Object.entries(node.labels).map(([key, value]) => element("li", {}, `${key}=${value}`))),
  ];
}

const PLACES = {
  bound: "bound",
  assumed: "being bound",
  active: "about to be tried",
  "in flight": "being tried now",
  backoff: "rejected; tried again after a pause",
  "error backoff": "met an error; tried again after a pause",
  unschedulable: "waits for a change of the cluster",
  gated: "held back",
  gone: "deleted; what follows is its history",
  "not ours": "left to another scheduler",
  outside: "not in the queue",
};

export function showPod(story, { podLink, nodeLink }) {
  const now = Date.now() / 1000;
  const { waiting, preempted } = story;
  const found = [
    facts([
      ["where", PLACES[story.place] || story.place],
      ["node", story.node ? nodeLink(story.node) : ""],
      ["nominated", story.nominatedNode ? nodeLink(story.nominatedNode) : ""],
      ["waits since", waiting ? `${clock(waiting.since)} (${age(now - waiting.since)})` : ""],
      ["rejected by", waiting ? waiting.rejectors.join(", ") : ""],
      ["gated by", waiting && waiting.gatingPlugin ? `${waiting.gatingPlugin}: ${waiting.gatingMessage}` : ""],
      ["preempted", preempted ? element("span", {}, "by ", podLink(preempted.preemptor), ` on ${preempted.node}, ${age(now - preempted.at)} ago`) : ""],
      ["scheduler", story.schedulerName],
      ["priority", count(story.priority)],
      ["uid", story.uid],
    ]),
  ];
  if (story.group) found.push(...group(story.group, { podLink, nodeLink }));
  const last = story.attempts.at(-1);
  if (last && last.message) found.push(heading("Why"), element("p", {}, last.message));
  if (story.now) found.push(...feasibility(story.now, nodeLink));
  if (story.attempts.length) {
    found.push(
      heading("Attempts"),
      table(
        [["#", "n"], ["when"], ["result"], ["took", "n"], ["nodes", "n"]],
        story.attempts.map((each) => [
          each.repeats > 1 ? `${each.number} (×${each.repeats})` : String(each.number),
          clock(each.at),
          each.node ? element("span", {}, `${each.result}: `, nodeLink(each.node)) : each.result,
          duration(each.seconds || each.decidingSeconds),
          `${count(each.feasible)} of ${count(each.evaluated)}`,
        ]),
      ),
    );
  }
  if (last && last.refusals.length) found.push(heading("Rejected by"), refusals(last.refusals));
  if (last && last.calls.length) {
    found.push(
      heading("Calls to extenders"),
      table(
        [["extender"], ["verb"], ["outcome"], ["took", "n"], ["refused", "n"]],
        last.calls.map((call) => [call.extender, call.verb, call.ignoredError ? `ignored: ${call.ignoredError}` : call.outcome, duration(call.seconds), count(call.dropped)]),
      ),
    );
  }
  if (last && last.victims) found.push(heading("Victims"), element("p", {}, ...last.victimPods.flatMap((key) => [podLink(key), " "]), last.victims > last.victimPods.length ? `and ${last.victims - last.victimPods.length} more` : ""));
  if (last && last.steps.length) found.push(heading("Binding"), table([["step"], ["status"], ["took", "n"]], last.steps.map((step) => [step.name, step.status, duration(step.seconds)])));
  if (story.moves.length) found.push(heading("Queue"), table([["when"], ["event"], ["to"]], story.moves.map((move) => [move.at ? clock(move.at) : "–", move.event, move.place])));
  return found;
}

function group(told, { podLink, nodeLink }) {
  const found = [heading(`Pod group ${told.name}`)];
  if (!told.read) return [...found, element("p", {}, `${told.kind} is not read here; the pod is scheduled without its group.`)];
  const cycle = told.cycles.at(-1);
  found.push(
    facts([
      ["kind", told.kind],
      ["waits for", told.waitsFor],
      ["needs", told.minCount ? `${count(told.minCount)} pods together` : ""],
      ["has", `${count(told.pods)} pods, ${count(told.scheduled)} of them with a node`],
      ["last cycle", cycle ? `${cycle.result}, room for ${count(cycle.placed)} of ${count(cycle.tried)}, ${clock(cycle.at)}` : ""],
      ["tried again", told.retryAt ? clock(told.retryAt) : ""],
    ]),
    table(
      [["pod"], ["where"], ["why"]],
      told.members.map((each) => [podLink(each.pod), each.node ? nodeLink(each.node) : PLACES[each.place] || each.place, each.message]),
    ),
  );
  return found;
}

const refusals = (rows) => table([["plugin"], ["nodes", "n"], ["reasons"]], rows.map((each) => [each.plugin, count(each.nodes), each.reasons.join("; ") || "–"]));

function feasibility(now, nodeLink) {
  const found = [heading("On the nodes as they are now, without extenders")];
  if (!now.feasible) return [...found, element("p", {}, now.message), ...(now.refusals.length ? [refusals(now.refusals)] : [])];
  found.push(element("p", {}, `${count(now.feasible)} of ${count(now.evaluated)} nodes would do (${percent(now.feasible / Math.max(1, now.evaluated))}).`));
  found.push(table([["node"], ["score", "n"]], now.top.map((each) => [nodeLink(each.node), count(each.total)])));
  return found;
}
