import type { Cidr, IPFamily } from '../lib/address.ts';
import type { PortRef, ServiceOptions } from './model.ts';

/** A port of a Service that can be forwarded to. */
export interface ServicePort {
  readonly owner: PortRef;
  readonly port: number;
  /** 0: none. */
  readonly nodePort: number;
}

/** The part of a Service that forwarding needs; all of it is valid. */
export interface ParsedService {
  readonly namespace: string;
  readonly name: string;
  /** Milliseconds since 1970; Infinity if the object has no time. */
  readonly createdAt: number;
  readonly clusterIP: Readonly<Record<IPFamily, string | null>>;
  readonly externalIPs: readonly string[];
  /** Load balancer addresses whose packets reach the node unchanged (ipMode VIP). */
  readonly loadBalancerIPs: readonly string[];
  readonly ports: readonly ServicePort[];
  readonly affinitySeconds: number | null;
  readonly externalLocal: boolean;
  readonly internalLocal: boolean;
  /** Null per family: all clients. */
  readonly sourceRanges: Readonly<Record<IPFamily, readonly Cidr[] | null>>;
  /** 0: none. */
  readonly healthCheckNodePort: number;
  readonly options: ServiceOptions;
}
