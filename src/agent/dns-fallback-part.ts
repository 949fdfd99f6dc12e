import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, Node, Service } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { nameServerOfNode, openDnsFallback } from '../network/dns-fallback.ts';
import type { DnsConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import { followDnsEndpoints } from './dns-endpoints.ts';
import { chosenNameServers, nextNameServer, otherNameServers } from './name-servers.ts';

/** Heartbeats of a large cluster's nodes arrive several times a second. */
const FOLLOW_MS = 1000;
/** An endpoint that ends answers for longer than this. */
const ENDPOINTS_MS = 100;
/** The number of name servers to which a node's queries are spread. */
const SERVERS = 8;

export interface FallbackSources {
  /** Null: the agents have no addresses in the pod network. */
  readonly nodes: Informer<Node> | null;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** The addresses on which this node answers other nodes' pods. */
  readonly own: readonly string[];
  /** Called with the addresses of the other nodes after each change. */
  readonly onChange: (others: readonly string[]) => void;
}

/**
 * Keeps the rules by which others answer this node's pods while no agent runs here: the agents of other nodes, or, if
 * there are none, the endpoints of a Service. The rules stay when the agent ends. Resolves when the kernel has them; to true if
 * others answer now.
 */
export async function startDnsFallback(
  context: AgentContext,
  dns: DnsConfiguration,
  { nodes, services, slices, own, onChange }: FallbackSources,
): Promise<boolean> {
  const { clock, configuration, signal } = context;
  const { nodeName } = configuration;
  const logger = context.logger.child({ part: 'dns' });
  const fallback = openDnsFallback({ clock, logger });
  context.onClose(() => fallback.close());
  let known: string | null = null;
  let isAnswered = false;
  let knownNodes: string | null = null;
  const write = () => {
    const all = nodes?.list() ?? [];
    const ofNodes = otherNameServers(nodeName, all, SERVERS);
    const next = nextNameServer(nodeName, all);
    const others =
      ofNodes.length > 0 ? ofNodes.map(nameServerOfNode) : chosenNameServers(nodeName, endpoints(), SERVERS);
    if (ofNodes.join() !== knownNodes) {
      knownNodes = ofNodes.join();
      onChange(ofNodes);
    }
    const state = JSON.stringify([others, next]);
    if (state === known) return;
    known = state;
    isAnswered = false;
    try {
      fallback.write({ cluster: dns.addresses, own, others, next });
      isAnswered = others.length > 0;
    } catch (error) {
      logger.warn(
        { err: error },
        `while no agent runs on this node, its pods' DNS queries are rejected: ${messageOf(error)}; the kernel needs nft_socket and zones of connection tracking`,
      );
    }
  };
  let due = Number.POSITIVE_INFINITY;
  let cancel = () => {};
  let isStarted = false;
  const within = (ms: number) => () => {
    if (!isStarted || clock.now() + ms >= due) return;
    cancel();
    due = clock.now() + ms;
    cancel = clock.after(ms, () => {
      due = Number.POSITIVE_INFINITY;
      write();
    });
  };
  const endpoints = followDnsEndpoints({
    services,
    slices,
    cluster: dns.addresses,
    service: dns.fallbackService,
    node: nodeName,
    onChange: within(ENDPOINTS_MS),
  });
  await Promise.all([nodes?.synced, services.synced, slices.synced]);
  if (signal.aborted) return false;
  isStarted = true;
  write();
  const later = within(FOLLOW_MS);
  nodes?.handle({ onAdd: later, onUpdate: later, onDelete: later });
  context.onClose(() => cancel());
  return isAnswered;
}
