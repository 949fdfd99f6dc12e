import type { Verdict } from './conditions.ts';
import type { Identity } from './identity.ts';
import type { NamespaceSelection } from './namespace-selection.ts';
import type { GatewayObject } from './objects.ts';
import type { CertificateKey, GatewayKey, HostPattern, Termination } from './route-map.ts';

export type Protocol = 'HTTP' | 'HTTPS' | 'TLS' | 'TCP' | 'UDP';

/** A Gateway or a ListenerSet: what routes name as their parent. */
export interface ListenerOwner {
  readonly kind: 'Gateway' | 'ListenerSet';
  readonly identity: Identity;
  readonly object: GatewayObject;
}

/** One listener, with what its conditions will say. Verdicts change while conflicts and references are found. */
export interface Listener {
  readonly owner: ListenerOwner;
  readonly gateway: GatewayKey;
  /** As in the object. */
  readonly name: string;
  /** As in the map: unique in its gateway. */
  readonly mapName: string;
  readonly hostname: HostPattern;
  readonly port: number;
  /** null: none of those that the API has. */
  readonly protocol: Protocol | null;
  readonly passthrough: boolean;
  /** Kinds of routes that may attach. */
  readonly kinds: readonly string[];
  readonly allows: NamespaceSelection;
  tls: Termination | null;
  accepted: Verdict;
  resolved: Verdict;
  /** null: no conflict. */
  conflict: Verdict | null;
  overlap: string | null;
  /** Why it serves nothing, although it is accepted; null: it does. */
  unusable: string | null;
  attachedRoutes: number;
}

/** A Gateway of our classes, its listeners, and those of the ListenerSets that are merged into it. */
export interface KnownGateway {
  readonly key: GatewayKey;
  readonly owner: ListenerOwner;
  readonly listeners: readonly Listener[];
  readonly sets: readonly KnownSet[];
  readonly addresses: readonly string[];
  /** Why nothing of it is served: its class, parameters or addresses; null: it is. */
  readonly refusal: Verdict | null;
  /** Shown to backends by BackendTLSPolicies; null: none. */
  readonly clientCertificate: CertificateKey | null;
  readonly clientCertificateProblem: Verdict | null;
  readonly insecureClients: boolean;
}

export interface KnownSet {
  readonly owner: ListenerOwner;
  readonly gateway: GatewayKey;
  readonly listeners: readonly Listener[];
  /** Why it is not part of its Gateway; null: it is. */
  readonly refusal: Verdict | null;
}

/** Reports whether requests reach a listener. */
export function isServed({ accepted, conflict, unusable }: Listener): boolean {
  return accepted.holds && conflict === null && unusable === null;
}
