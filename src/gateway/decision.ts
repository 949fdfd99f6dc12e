import type {
  CookieAffinity,
  Forward,
  GatewayKey,
  HeaderChanges,
  HeaderValue,
  Mirror,
  RouteRef,
  WeightedBackend,
} from './route-map.ts';

/** A request, or the connection that it would come on, as it arrives at a gateway. */
export interface GatewayRequest {
  readonly gateway: GatewayKey;
  readonly port: number;
  readonly transport: 'tcp' | 'udp';
  /** Server name of the ClientHello ("" without one); null: the connection has no TLS. */
  readonly serverName: string | null;
  readonly method: string;
  /** Value of the Host header or of :authority, with its port if it has one. */
  readonly host: string;
  /** Path and query, as sent. */
  readonly target: string;
  /** In the order of arrival. */
  readonly headers: readonly HeaderValue[];
  /** Address of the client; null: not known. */
  readonly source: string | null;
}

export type Decision =
  /** The connection is closed, or refused by an alert of TLS. */
  | { readonly kind: 'close'; readonly listener: string | null; readonly reason: string }
  /** The bytes of the connection (or the datagrams) are passed on; if `terminated`, after TLS ended here. */
  | {
      readonly kind: 'stream';
      readonly listener: string;
      readonly route: RouteRef;
      readonly terminated: boolean;
      readonly backends: readonly WeightedBackend[];
    }
  /** Answered by the gateway. `row` and `route`: what decided it; null: nothing matched. */
  | {
      readonly kind: 'error';
      readonly listener: string | null;
      readonly row: string | null;
      readonly route: RouteRef | null;
      readonly status: number;
      readonly reason: string;
    }
  | {
      readonly kind: 'redirect';
      readonly listener: string;
      readonly row: string;
      readonly route: RouteRef;
      readonly status: number;
      readonly location: string;
      readonly response: HeaderChanges;
    }
  /** The answer to a CORS preflight, which no backend sees. */
  | {
      readonly kind: 'preflight';
      readonly listener: string;
      readonly row: string;
      readonly route: RouteRef;
      readonly status: 200;
      readonly headers: readonly HeaderValue[];
    }
  | ForwardDecision;

export interface ForwardDecision {
  readonly kind: 'forward';
  readonly listener: string;
  readonly row: string;
  readonly route: RouteRef;
  readonly protocol: Forward['protocol'];
  /** A share of the weights whose backend is null is answered with 500. */
  readonly backends: readonly WeightedBackend[];
  /** What the backend sees. */
  readonly host: string;
  readonly target: string;
  readonly request: HeaderChanges;
  readonly response: HeaderChanges;
  /** Headers of CORS that the gateway adds to the answer, in place of the backend's. */
  readonly cors: readonly HeaderValue[];
  readonly mirrors: readonly Mirror[];
  readonly timeouts: Forward['timeouts'];
  readonly retry: Forward['retry'];
  readonly affinity: CookieAffinity | null;
  readonly bodyLimit: number | null;
}
