/**
 * The wire contract extender/v1, as far as this extender needs it. Keys are Go's field names; requests have every one of them,
 * with null for what is not used.
 */

/** What is read of a pod or a node; whatever else it has goes back untouched. */
export interface KubeObject {
  metadata: { name: string; annotations?: Record<string, string> };
}

/** What filter and prioritize are asked. Exactly one of Nodes and NodeNames is not null. */
export interface ExtenderArgs {
  Pod: KubeObject;
  Nodes: { items: KubeObject[] | null } | null;
  NodeNames: string[] | null;
}

/** The answer to filter. */
export interface ExtenderFilterResult {
  Nodes?: { metadata: object; items: KubeObject[] } | null;
  NodeNames?: string[] | null;
  FailedNodes?: Record<string, string>;
  FailedAndUnresolvableNodes?: Record<string, string>;
  Error: string;
}

/** One entry of the answer to prioritize; scores go from 0 to 10. */
export interface HostPriority {
  Host: string;
  Score: number;
}

/** Reads a request. Throws when it is none. */
export function readArgs(body: string): ExtenderArgs {
  const args: unknown = JSON.parse(body);
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    throw new TypeError("the request is no object");
  }
  const { Pod = null, Nodes = null, NodeNames = null } = args as Partial<ExtenderArgs>;
  if (Pod === null) {
    throw new TypeError("there is no Pod in the request");
  }
  for (const object of [Pod, ...(Nodes?.items ?? [])]) {
    if (typeof object?.metadata?.name !== "string") {
      throw new TypeError("an object without a name is in the request");
    }
  }
  return { Pod, Nodes, NodeNames };
}
