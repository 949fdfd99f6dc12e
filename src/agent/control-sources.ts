import type { LimitedClients } from '../dns/limited-clients.ts';
import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, Service } from '../kube/types.ts';
import type { LimitedClients as KernelLimitedClients } from '../network/dns-limit.ts';
import type { ProxyHealth } from '../proxy/status-servers.ts';
import type { EgressPart } from './egress-part.ts';
import type { IndexedObjects } from './explain-objects.ts';
import type { FollowedNodes } from './followed-nodes.ts';
import type { PolicyPart } from './policy-part.ts';
import type { ProxyPart } from './proxy-part.ts';

export interface ControlSources {
  readonly part: ProxyPart;
  readonly followed: FollowedNodes;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  readonly policies: PolicyPart | null;
  /** Null: no pod network of ours. */
  readonly egress: EgressPart | null;
  /** The health of the whole agent, as /healthz says it. */
  readonly health: () => ProxyHealth;
  /**
   * Lists the objects that explanations need and the agent does not watch. Questions at the same time share a listing;
   * `maxAgeMs`: an earlier one may answer.
   */
  readonly listToExplain: (maxAgeMs: number) => Promise<IndexedObjects>;
  /** Clients of which the agent's name server drops queries. */
  readonly limited: LimitedClients;
  /** Reads the pods that may open no more connections, from the kernel, a sixth of an explanation's time. Shared as above. */
  readonly heldPods: (maxAgeMs: number) => Promise<{ has(pod: string): boolean }>;
  /** Reads the clients whose DNS queries the kernel drops. Shared as above. */
  readonly limitedClients: (maxAgeMs: number) => Promise<KernelLimitedClients>;
}
