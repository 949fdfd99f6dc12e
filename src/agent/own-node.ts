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
 * Returns this machine's Node object for the proxy. If it is missing or has no address after some seconds, returns a
 * substitute with the configured name, so that Services work as far as possible, and logs the problem. Rejects
 * when the signal aborts.
 */
export async function ownNodeOrSubstitute(options: OwnNodeOptions): Promise<Node> {
  const { nodes, name, address, clock, logger } = options;
  await nodes.synced;
  const found = nodeWhen(options, (node) => nodeProblem(node, name, address) === null);
  const patience = Promise.withResolvers<null>();
  const cancel = clock.after(PATIENCE_MS, () => patience.resolve(null));
  const node = await Promise.race([found, patience.promise]);
  cancel();
  if (node) return withAddress(node, address);
  found.catch(() => {});
  const known = nodes.get(name);
  logger.warn(
    { node: name },
    `${nodeProblem(known, name, address)}; Services are programmed without node-dependent features, and /healthz answers 503`,
  );
  return withAddress(known ?? { metadata: { name } }, address);
}

/** Returns the reason why a Node object is insufficient for a proxy, or null. */
export function nodeProblem(node: Node | undefined, name: string, address: string | null): string | null {
  if (!node) {
    return `no such Node: ${name}: set nodeName, --hostname-override or NODE_NAME to the name of this machine's Node`;
  }
  const isKnown = address !== null || addresses(node, 'InternalIP', 'ExternalIP').length > 0;
  return isKnown ? null : `Node ${name} has neither an InternalIP nor an ExternalIP`;
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
    const look = (node: Node) => {
      if (node.metadata?.name !== name || !wanted(node)) return;
      stop();
      resolve(node);
    };
    let stop = () => {};
    stop = nodes.handle({ onAdd: look, onUpdate: look });
    signal.addEventListener('abort', () => {
      stop();
      reject(signal.reason);
    });
  });
}

function addresses(node: Node, ...types: string[]): string[] {
  return (node.status?.addresses ?? []).filter((one) => types.includes(one.type)).map((one) => one.address);
}
