import { isLater } from '../kube/resource-version.ts';
import type { Node } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { peerNode } from '../network/peer-node.ts';
import { isReady } from './followed-nodes.ts';

/** A node whose proxy is waited for. */
export interface AskedNode {
  readonly name: string;
  readonly address: string;
}

export interface ProgrammedNodesOptions {
  /** Returns the version that this node's kernel has; null: none. */
  readonly own: () => string | null;
  /** Returns the other nodes that are ready. */
  readonly others: () => readonly AskedNode[];
  /** Asks a node for the version that its kernel has; null: it does not answer, or not with one. */
  readonly ask: (address: string) => Promise<string | null>;
  readonly clock: Clock;
}

/** Tells whether the proxies of all nodes have programmed a version of the EndpointSlices. */
export interface ProgrammedNodes {
  /**
   * Returns true if the kernels of all nodes have this version or a later one. Otherwise the nodes that are known not to have
   * it are asked: call this again. A node that has never answered, as one with another proxy, is not waited for.
   */
  have(version: string): boolean;
}

/** Returns the nodes except `own` that are ready and have an address. */
export function askedNodes(nodes: readonly Node[], own: string): AskedNode[] {
  return nodes.flatMap((node) => {
    const { name, addresses } = peerNode(node);
    const [address] = addresses;
    return name === own || address === undefined || !isReady(node) ? [] : [{ name, address }];
  });
}

const ASK_AGAIN_MS = 50;
/** The number of other nodes up to which they are asked: the questions of all nodes grow with its square. */
export const MAX_ASKED = 64;

interface Known {
  version: string | null;
  isAsking: boolean;
  /** When the last question was answered, or not; null: there was none. */
  askedAt: number | null;
}

export function createProgrammedNodes(options: ProgrammedNodesOptions): ProgrammedNodes {
  const { own, others, ask, clock } = options;
  let known = new Map<string, Known>();

  async function askNode({ address }: AskedNode, entry: Known): Promise<void> {
    entry.isAsking = true;
    const version = await ask(address);
    if (version !== null) entry.version = version;
    entry.askedAt = clock.now();
    entry.isAsking = false;
  }
  function isMissing(node: AskedNode, version: string): boolean {
    const entry = known.get(node.name) ?? { version: null, isAsking: false, askedAt: null };
    known.set(node.name, entry);
    if (entry.version !== null && !isLater(version, entry.version)) return false;
    const isDue = entry.askedAt === null || clock.now() - entry.askedAt >= ASK_AGAIN_MS;
    if (isDue && !entry.isAsking) void askNode(node, entry);
    return entry.version !== null || entry.askedAt === null;
  }

  /** Forgets nodes that are gone, or were not ready. */
  function keep(nodes: readonly AskedNode[]): void {
    const kept = new Set(nodes.map(({ name }) => name));
    known = new Map([...known].filter(([name]) => kept.has(name)));
  }

  return {
    have(version) {
      const mine = own();
      if (mine !== null && isLater(version, mine)) return false;
      const nodes = others();
      if (nodes.length > MAX_ASKED) return true;
      keep(nodes);
      return nodes.filter((node) => isMissing(node, version)).length === 0;
    },
  };
}
