import { existsSync } from 'node:fs';
import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import { familyOf } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';

export interface OwnNodeOptions {
  readonly nodes: Informer<Node>;
  readonly name: string;
  /** The configured primary address; null: the Node object's. */
  readonly address: string | null;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** How long a proxy waits for its Node object before it programs Services without it. */
const PATIENCE_MS = 3000;

/**
 * Returns this machine's Node object. If it is missing or incomplete after some seconds, returns what is known of it, at
 * least the configured name, so that Services work as far as possible. Rejects when the signal aborts.
 */
export async function ownNodeOrSubstitute(
  options: OwnNodeOptions & { readonly isComplete: (node: Node) => boolean },
): Promise<Node> {
  const { nodes, name, address, clock, isComplete } = options;
  await nodes.synced;
  const found = nodeWhen(options, (node) => isComplete(withAddress(node, address)));
  const patience = Promise.withResolvers<null>();
  const cancel = clock.after(PATIENCE_MS, () => patience.resolve(null));
  const node = await Promise.race([found, patience.promise]);
  cancel();
  if (node) return withAddress(node, address);
  found.catch(() => {});
  return withAddress(nodes.get(name) ?? { metadata: { name } }, address);
}

/** Logs what this machine's Node object lacks, at once and at each change, until the result is called. */
export function reportNodeProblems(
  options: Pick<OwnNodeOptions, 'nodes' | 'name' | 'address' | 'logger'>,
): () => void {
  const { nodes, name, address, logger } = options;
  let reported: string | null = null;
  const look = () => {
    const problem = nodeProblem(nodes.get(name), name, address);
    if (problem === reported) return;
    reported = problem;
    if (problem === null) logger.info({}, `Node ${name} and its address are known now`);
    else {
      logger.warn(
        {},
        `${problem}; Services are programmed without node-dependent features, and /healthz answers 503`,
      );
    }
  };
  const change = (node: Node) => {
    if (node.metadata?.name === name) look();
  };
  look();
  return nodes.handle({ onAdd: change, onUpdate: change, onDelete: change });
}

/** Returns the reason why a Node object is insufficient for a proxy, or null. */
export function nodeProblem(node: Node | undefined, name: string, address: string | null): string | null {
  if (!node) {
    return `no such Node: ${name}: set nodeName, --hostname-override or NODE_NAME to the name of this machine's Node`;
  }
  const isKnown = address !== null || addresses(node, 'InternalIP', 'ExternalIP').length > 0;
  return isKnown ? null : `Node ${name} has neither an InternalIP nor an ExternalIP`;
}

/** Returns what a Node lacks for a pod network, or null. */
export function podNetworkProblem(node: Node | undefined, name: string): string | null {
  if (!node) return `no such Node: ${name}`;
  if (addresses(node, 'InternalIP', 'ExternalIP').length === 0) {
    return `Node ${name} has neither an InternalIP nor an ExternalIP`;
  }
  const hasNetwork = (node.spec?.podCIDRs ?? []).length > 0;
  return hasNetwork
    ? null
    : `Node ${name} has no podCIDRs: a controller must assign them (--allocate-node-cidrs)`;
}

/** Returns the Node with `address` before the addresses in its status; null: unchanged. */
export function withAddress(node: Node, address: string | null): Node {
  if (address === null) return node;
  const own = (node.status?.addresses ?? []).filter((one) => one.address !== address);
  return {
    ...node,
    status: { ...node.status, addresses: [{ type: 'InternalIP', address }, ...own] },
  } as Node;
}

/** Returns the families of the node's addresses; without addresses, the families of the kernel. */
export function familiesOf(node: Node): IPFamily[] {
  const families = new Set(addresses(node, 'InternalIP', 'ExternalIP').flatMap((one) => familyOf(one) ?? []));
  if (families.size > 0) return [...families];
  return existsSync('/proc/sys/net/ipv6') ? ['ipv4', 'ipv6'] : ['ipv4'];
}

/** Resolves to the node's object as soon as it satisfies `wanted`. */
export function nodeWhen(
  { nodes, name, signal }: Pick<OwnNodeOptions, 'nodes' | 'name' | 'signal'>,
  wanted: (node: Node) => boolean,
): Promise<Node> {
  return new Promise((resolve, reject) => {
    let isFound = false;
    let stop = () => {};
    const look = (node: Node) => {
      if (node.metadata?.name !== name || isFound || !wanted(node)) return;
      isFound = true;
      stop();
      resolve(node);
    };
    stop = nodes.handle({ onAdd: look, onUpdate: look });
    // Found among the existing ones, before there was anything to stop.
    if (isFound) stop();
    signal.addEventListener('abort', () => {
      stop();
      reject(signal.reason);
    });
  });
}

function addresses(node: Node, ...types: string[]): string[] {
  return (node.status?.addresses ?? []).filter((one) => types.includes(one.type)).map((one) => one.address);
}
