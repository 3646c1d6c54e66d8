// What would happen: where pods would go, and what a drain would do, beside the cluster as it is now. Nothing is written.

import { ClusterMap } from "./cluster.js";
import { amount, count, element, percent, shortName } from "./format.js";

const at = (id) => document.getElementById(id);
const MOST_ROWS = 100;

/** `page`: nodes(), share(node, resource), title(node), fill(), groupOf(node), describe(nodes), map, nodeLink, openNode. */
export function setUp(page) {
  const chosen = new Set();
  let after = new Map();
  let asked = 0;

  const requestedAfter = (node) => after.get(node.name) || node.requested;
  const shareAfter = (node) => page.share({ allocatable: node.allocatable, requested: requestedAfter(node) }, page.fill());
  const now = new ClusterMap(
    at("map-now"),
    { name: (node) => node.name, share: (node) => page.share(node, page.fill()), before: null, flags: (node) => node.flags, title: page.title },
    (node) => page.openNode(node.name),
  );
  const then = new ClusterMap(
    at("map-after"),
    {
      name: (node) => node.name,
      share: shareAfter,
      before: (node) => page.share(node, page.fill()),
      flags: (node) => node.flags | (page.map.marks.get(node.name) === "goes" && chosen.has(node.name) ? 1 : 0),
      title: titleAfter,
    },
    (node) => page.openNode(node.name),
  );
  now.marks = page.map.marks;
  then.marks = page.map.marks;

  function titleAfter(node) {
    const changed = after.get(node.name);
    const lines = [node.name];
    for (const name of Object.keys(changed || node.requested)) {
      const all = node.allocatable[name];
      if (!all) continue;
      const used = requestedAfter(node)[name] || 0;
      const share = page.share({ allocatable: node.allocatable, requested: requestedAfter(node) }, name);
      lines.push(`${shortName(name)} ${amount(name, used)} of ${amount(name, all)} (${percent(share)}) afterwards`);
    }
    return lines.join("\n");
  }

  function draw() {
    if (at("whatif-maps").hidden) return;
    const nodes = page.nodes();
    now.show(nodes, page.groupOf, page.describe);
    then.show(nodes, page.groupOf, (members) => (members.length === 1 ? "1 node" : `${count(members.length)} nodes`));
  }

  function mark(answer) {
    page.map.marks.clear();
    for (const name of chosen) page.map.marks.set(name, "chosen");
    for (const { name, pods, leaving } of answer ? answer.nodes : []) {
      page.map.marks.set(name, pods ? "comes" : leaving ? "goes" : "comes");
    }
    page.map.draw();
  }

  // ---------------------------------------------------------------- asking

  async function ask(question) {
    const number = (asked += 1);
    const host = at("whatif-answer");
    host.replaceChildren(element("p", { class: "note" }, "Asking …"));
    at("whatif-pods").replaceChildren();
    at("whatif").scrollIntoView({ block: "nearest" });
    let answer;
    try {
      const response = await fetch("whatif", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
      const text = await response.text();
      if (number !== asked) return;
      if (!response.headers.get("Content-Type").startsWith("application/json")) throw new Error(text);
      answer = JSON.parse(text);
    } catch (error) {
      if (number === asked) {
        after = new Map();
        at("whatif-maps").hidden = true;
        mark(null);
        host.replaceChildren(element("p", { class: "verdict bad" }, "✗ No answer"), element("p", { class: "told" }, error.message));
      }
      return;
    }
    after = new Map(answer.nodes.filter((node) => node.requested).map((node) => [node.name, node.requested]));
    mark(answer);
    host.replaceChildren(...told(answer));
    at("whatif-pods").replaceChildren(...(answer.pods.length ? [table(answer)] : []));
    at("whatif-maps").hidden = false;
    draw();
  }

  function told(answer) {
    const { placed, pending } = answer;
    const pods = (number) => (number === 1 ? "1 pod" : `${count(number)} pods`);
    const good = !pending && !answer.budgets.length;
    const verdict = pending ? `${pods(placed)} would get a node, ${count(pending)} would not` : `${pods(placed)} would get a node`;
    const parts = [element("p", { class: "verdict" }, element("span", { class: good ? "good" : "warning", "aria-hidden": "true" }, good ? "✓ " : "▲ "), verdict)];
    for (const each of answer.budgets) {
      parts.push(element("p", { class: "told warning" }, `The budget ${each.namespace}/${each.name} allows ${count(each.allowed)} of ${count(each.pods)} disruptions`));
    }
    for (const text of [answer.message, ...answer.warnings]) if (text) parts.push(element("p", { class: "told" }, text));
    const helped = answer.pods.find((pod) => pod.suggestions);
    if (helped) parts.push(element("h3", {}, `What would help ${helped.namespace}/${helped.name}`), suggestions(helped));
    return parts;
  }

  function suggestions(pod) {
    return element(
      "ol",
      { class: "suggestions" },
      ...pod.suggestions.map((each) => {
        const budgets = each.budgets.map((b) => `, against the budget ${b.namespace}/${b.name}`).join("");
        return element("li", {}, each.changes.map((change) => change.text).join(", and ") + budgets + ": ", page.nodeLink(each.node));
      }),
    );
  }

  function table(answer) {
    const moved = answer.pods.some((pod) => pod.from);
    const heads = ["pod", ...(moved ? ["from"] : []), "node", "evicts, or why not"];
    const rows = answer.pods.slice(0, MOST_ROWS).map((pod) => {
      const evicts = (pod.preempts || []).map((each) => `${each.namespace}/${each.name}`).join(", ");
      return element(
        "tr",
        {},
        element("td", {}, `${pod.namespace}/${pod.name}`),
        ...(moved ? [element("td", {}, pod.from ? page.nodeLink(pod.from) : "–")] : []),
        element("td", {}, pod.node ? page.nodeLink(pod.node) : "–", pod.node && pod.tie ? " or one as good" : ""),
        element("td", {}, pod.message || evicts),
      );
    });
    const head = element("thead", {}, element("tr", {}, ...heads.map((name) => element("th", {}, name))));
    const left = answer.placed + answer.pending - rows.length;
    const more = left > 0 ? [element("p", { class: "note" }, `and ${count(left)} more`)] : [];
    return element("div", { class: "scroll" }, element("table", {}, head, element("tbody", {}, ...rows)), ...more);
  }

  // ---------------------------------------------------------------- forms

  function drawChosen() {
    at("drain-nodes").replaceChildren(
      ...[...chosen].map((name) => element("li", {}, `${name} `, element("button", { class: "link", type: "button", "aria-label": `not ${name}`, onclick: () => toggle(name) }, "✕"))),
    );
    at("drain").disabled = !chosen.size;
  }

  function toggle(name) {
    if (!page.nodes().some((node) => node.name === name)) return;
    if (!chosen.delete(name)) chosen.add(name);
    at("drain-told").textContent = `${name} is ${chosen.has(name) ? "" : "not "}chosen`;
    drawChosen();
    after = new Map();
    at("whatif-maps").hidden = true;
    mark(null);
  }

  function fits(pod, copies) {
    at("like-pod").value = pod;
    at("copies").value = copies || "";
    at("manifest").value = "";
    at("fits-form").requestSubmit();
  }

  at("fits-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const manifest = at("manifest").value;
    const pod = at("like-pod").value.trim();
    const copies = Number(at("copies").value) || null;
    chosen.clear();
    drawChosen();
    if (manifest.trim() || pod) ask({ question: "fits", manifest, pods: pod ? [pod.includes("/") ? pod : `default/${pod}`] : [], copies });
  });
  at("drain-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = at("drain-node").value.trim();
    at("drain-node").value = "";
    if (name && !chosen.has(name)) toggle(name);
    else if (chosen.size) ask({ question: "drain", nodes: [...chosen] });
  });
  at("drain").addEventListener("click", () => ask({ question: "drain", nodes: [...chosen] }));
  drawChosen();
  new ResizeObserver(draw).observe(at("whatif-maps"));
  return { draw, toggle, fits };
}
