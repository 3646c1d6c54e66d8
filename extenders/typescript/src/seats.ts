/**
 * Licences counted per node.
 *
 * Whoever hands out the licences writes how many a node has left into the node's annotation licences.example.com/free, and a
 * pod says how many it needs in its annotation licences.example.com/wanted. The Python and Go samples answer the same.
 */

import type { ExtenderArgs, ExtenderFilterResult, HostPriority, KubeObject } from "./wire.js";

const FREE = "licences.example.com/free";
const WANTED = "licences.example.com/wanted";
const HIGHEST_SCORE = 10;

/** Which nodes have licences enough. */
export function filter(args: ExtenderArgs): ExtenderFilterResult {
  const wanted = numberIn(args.Pod, WANTED);
  if (wanted === null) {
    const text = args.Pod.metadata.annotations?.[WANTED];
    return turnDownAll(args, `pod's annotation ${WANTED} is no number: ${text}`);
  }
  const passed: KubeObject[] = [];
  const failed: Record<string, string> = {};
  const unresolvable: Record<string, string> = {};
  for (const node of wholeNodes(args)) {
    const free = numberIn(node, FREE);
    const name = node.metadata.name;
    if (wanted > 0 && node.metadata.annotations?.[FREE] === undefined) {
      unresolvable[name] = "node has no licences";
    } else if (free === null) {
      unresolvable[name] = `node's annotation ${FREE} is no number`;
    } else if (free < wanted) {
      failed[name] = `${wanted} licences wanted, ${free} free`;
    } else {
      passed.push(node);
    }
  }
  return {
    Nodes: { metadata: {}, items: passed },
    NodeNames: null,
    FailedNodes: failed,
    FailedAndUnresolvableNodes: unresolvable,
    Error: "",
  };
}

/** The part of the licences that a node has left, of what the best of these nodes has: 0 to 10. */
export function prioritize(args: ExtenderArgs): HostPriority[] {
  const nodes = wholeNodes(args);
  const free = nodes.map((node) => numberIn(node, FREE) ?? 0);
  const most = Math.max(0, ...free);
  return nodes.map((node, index) => ({
    Host: node.metadata.name,
    Score: most > 0 ? Math.floor((HIGHEST_SCORE * (free[index] ?? 0)) / most) : 0,
  }));
}

/** Answers in the form that was asked in. */
function turnDownAll(args: ExtenderArgs, reason: string): ExtenderFilterResult {
  const names = args.Nodes?.items?.map((node) => node.metadata.name) ?? args.NodeNames ?? [];
  return {
    Nodes: args.Nodes === null ? null : { metadata: {}, items: [] },
    NodeNames: args.Nodes === null ? [] : null,
    FailedNodes: {},
    FailedAndUnresolvableNodes: Object.fromEntries(names.map((name) => [name, reason])),
    Error: "",
  };
}

function wholeNodes(args: ExtenderArgs): KubeObject[] {
  if (args.Nodes === null) {
    throw new Error("this extender needs whole nodes: set nodeCacheCapable: false for it");
  }
  return args.Nodes.items ?? [];
}

/** An annotation that must be a number: 0 without it, null if it is something else. */
function numberIn(object: KubeObject, key: string): number | null {
  const text = object.metadata.annotations?.[key] ?? "0";
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : null;
}
