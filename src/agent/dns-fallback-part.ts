import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { openDnsFallback } from '../network/dns-fallback.ts';
import type { AgentContext } from './agent-context.ts';
import { nextNameServer, otherNameServers } from './name-servers.ts';

/** Heartbeats of a large cluster's nodes arrive several times a second. */
const FOLLOW_MS = 1000;
/** The number of other nodes to which a node's queries are spread. */
const NODES = 8;

export interface FallbackSources {
  readonly nodes: Informer<Node>;
  /** The cluster DNS addresses. */
  readonly cluster: readonly string[];
  /** The addresses on which this node answers other nodes' pods. */
  readonly own: readonly string[];
  /** Called with the addresses of the other nodes after each change. */
  readonly onChange: (others: readonly string[]) => void;
}

/** Keeps the rules by which other nodes answer this node's pods while no agent runs here; they stay when the agent ends. */
export async function startDnsFallback(
  context: AgentContext,
  { nodes, cluster, own, onChange }: FallbackSources,
): Promise<void> {
  const { clock, configuration, signal } = context;
  const logger = context.logger.child({ part: 'dns' });
  const fallback = openDnsFallback({ clock, logger });
  context.onClose(() => fallback.close());
  let known: string | null = null;
  const write = () => {
    const all = nodes.list();
    const others = otherNameServers(configuration.nodeName, all, NODES);
    const next = nextNameServer(configuration.nodeName, all);
    const state = [...others, ...next].join();
    if (state === known) return;
    known = state;
    onChange(others);
    try {
      fallback.write({ cluster, own, others, next });
    } catch (error) {
      logger.warn(
        { err: error },
        `while no agent runs on this node, its pods' DNS queries are rejected: ${messageOf(error)}; the kernel needs nft_socket and zones of connection tracking`,
      );
    }
  };
  await nodes.synced;
  if (signal.aborted) return;
  write();
  let cancel: (() => void) | null = null;
  const later = () => {
    cancel ??= clock.after(FOLLOW_MS, () => {
      cancel = null;
      write();
    });
  };
  nodes.handle({ onAdd: later, onUpdate: later, onDelete: later });
  context.onClose(() => cancel?.());
}
