import { HEADLESS_LABEL, PROXY_NAME_LABEL } from '../kube/well-known-labels.ts';

/**
 * The parts of API objects that forwarding is compiled from. The types match objects as the API server
 * sends them, but nothing in them is trusted: a wrong type or value becomes a Finding.
 */

export interface ObjectMeta {
  readonly name?: string | undefined;
  readonly namespace?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
  /** RFC 3339. */
  readonly creationTimestamp?: string | undefined;
}

/** v1 Service. */
export interface ServiceObject {
  readonly metadata?: ObjectMeta | undefined;
  readonly spec?: ServiceSpec | undefined;
  readonly status?:
    | {
        readonly loadBalancer?:
          | {
              readonly ingress?:
                | readonly {
                    readonly ip?: string | undefined;
                    readonly ipMode?: string | undefined;
                    readonly hostname?: string | undefined;
                  }[]
                | undefined;
            }
          | undefined;
      }
    | undefined;
}

export interface ServiceSpec {
  readonly type?: string | undefined;
  readonly clusterIP?: string | undefined;
  readonly clusterIPs?: readonly string[] | undefined;
  readonly externalIPs?: readonly string[] | undefined;
  readonly ports?:
    | readonly {
        readonly name?: string | undefined;
        readonly protocol?: string | undefined;
        readonly port: number;
        readonly targetPort?: number | string | undefined;
        readonly nodePort?: number | undefined;
      }[]
    | undefined;
  readonly selector?: Readonly<Record<string, string>> | undefined;
  readonly sessionAffinity?: string | undefined;
  readonly sessionAffinityConfig?:
    | { readonly clientIP?: { readonly timeoutSeconds?: number | undefined } | undefined }
    | undefined;
  readonly externalTrafficPolicy?: string | undefined;
  readonly internalTrafficPolicy?: string | undefined;
  readonly loadBalancerSourceRanges?: readonly string[] | undefined;
  readonly healthCheckNodePort?: number | undefined;
  readonly externalName?: string | undefined;
}

export interface SliceEndpoint {
  readonly addresses: readonly string[];
  readonly conditions?:
    | {
        readonly ready?: boolean | null | undefined;
        readonly serving?: boolean | null | undefined;
        readonly terminating?: boolean | null | undefined;
      }
    | null
    | undefined;
  readonly nodeName?: string | null | undefined;
  readonly targetRef?:
    | {
        readonly kind?: string | undefined;
        readonly namespace?: string | undefined;
        readonly name?: string | undefined;
      }
    | null
    | undefined;
  readonly hints?:
    | {
        readonly forZones?: readonly { readonly name: string }[] | null | undefined;
        readonly forNodes?: readonly { readonly name: string }[] | null | undefined;
      }
    | null
    | undefined;
}

/** discovery.k8s.io/v1 EndpointSlice. */
export interface EndpointSliceObject {
  readonly metadata?: ObjectMeta | undefined;
  readonly addressType?: string | undefined;
  readonly endpoints?: readonly SliceEndpoint[] | null | undefined;
  readonly ports?:
    | readonly {
        readonly name?: string | null | undefined;
        readonly protocol?: string | null | undefined;
        readonly port?: number | null | undefined;
      }[]
    | null
    | undefined;
}

/** v1 Node. */
export interface NodeObject {
  readonly metadata?: ObjectMeta | undefined;
  readonly spec?:
    | { readonly podCIDR?: string | undefined; readonly podCIDRs?: readonly string[] | undefined }
    | undefined;
  readonly status?:
    | {
        readonly addresses?: readonly { readonly type: string; readonly address: string }[] | undefined;
      }
    | undefined;
}

/** The presence of one of these labels, with any value, makes the proxy ignore an object. */
export const IGNORE_LABELS: readonly string[] = [PROXY_NAME_LABEL, HEADLESS_LABEL];
export const IPVS_SCHEDULER_ANNOTATION = 'fairlead.dev/ipvs-scheduler';
export const BALANCE_ANNOTATION = 'fairlead.dev/balance';
export const FAILOVER_ANNOTATION = 'fairlead.dev/failover';
