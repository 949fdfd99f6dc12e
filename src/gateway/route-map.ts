/**
 * What the gateways of a cluster do with requests, as data: `attach()` computes it from the API's objects, `decide()`
 * interprets it, and renderings (src/gateway/haproxy) implement it. Nothing here depends on a clock, a node or a proxy.
 * Endpoints and the contents of Secrets are apart, because they change more often: a map names them by key.
 */

/** "gateway/NAMESPACE/NAME"; all Ingresses of a class share one: "ingress/CLASS". */
export type GatewayKey = string;

/**
 * "NAMESPACE/NAME:PORT", the port's number in the Service; "+h2c", "+websocket", "+tls" … follow when the same port is used
 * in another way than HTTP/1.1 in plain text. Its parts are fields of Backend: do not parse it.
 */
export type BackendKey = string;

/** "NAMESPACE/NAME" of a Secret of type kubernetes.io/tls. */
export type CertificateKey = string;

/** "NAMESPACE/Secret/NAME" or "NAMESPACE/ConfigMap/NAME": an object whose `ca.crt` has authorities. */
export type AuthorityKey = string;

/** Lower-case DNS name without a final dot; "*.example.com" for a wildcard of one or more labels; "" for every name. */
export type HostPattern = string;

export interface RouteMap {
  /** Ordered by key. */
  readonly gateways: readonly GatewayPlan[];
  /** Every backend that an action of the map names, ordered by key. */
  readonly backends: readonly Backend[];
}

export interface GatewayPlan {
  readonly key: GatewayKey;
  /** Addresses that the object asks for; empty: any of the pool. */
  readonly addresses: readonly string[];
  /** What the objects that are made for a Gateway have as well; absent: nothing. */
  readonly infrastructure?: {
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
  };
  /** Ordered by number, then protocol; at most one plan a number and transport. */
  readonly ports: readonly PortPlan[];
}

export type PortPlan = HttpPort | TlsPort | StreamPort;

/** Requests without TLS. */
export interface HttpPort {
  readonly kind: 'http';
  readonly port: number;
  /** Most specific hostname first. A request belongs to the first listener whose hostname matches its Host, to no other. */
  readonly listeners: readonly HttpListener[];
}

/** Connections with TLS: terminated or passed through, by the server name of the ClientHello. */
export interface TlsPort {
  readonly kind: 'tls';
  readonly port: number;
  /** Most specific hostname first. A connection belongs to the first listener whose hostname matches its server name. */
  readonly listeners: readonly TlsListener[];
}

/** TCP or UDP that the node's kernel forwards, as a frontend of the ServiceMap. */
export interface StreamPort {
  readonly kind: 'tcp' | 'udp';
  readonly port: number;
  readonly listener: string;
  readonly route: RouteRef | null;
  /** Empty: connections are rejected. */
  readonly backends: readonly WeightedBackend[];
}

export interface HttpListener {
  /** The listener's name in its Gateway or ListenerSet ("NAMESPACE/SET/NAME" of a set); "http" of Ingresses. */
  readonly name: string;
  readonly hostname: HostPattern;
  /** Most specific first. A request belongs to the first whose hostname matches; each table is complete. */
  readonly hosts: readonly HostTable[];
}

export type TlsListener =
  | (HttpListener & { readonly kind: 'https'; readonly tls: Termination })
  | {
      readonly kind: 'terminate';
      readonly name: string;
      readonly hostname: HostPattern;
      readonly tls: Termination;
      readonly hosts: readonly TlsHost[];
    }
  | {
      readonly kind: 'passthrough';
      readonly name: string;
      readonly hostname: HostPattern;
      readonly hosts: readonly TlsHost[];
    };

/** Where a TLSRoute leads the connections of a server name. */
export interface TlsHost {
  readonly hostname: HostPattern;
  readonly route: RouteRef;
  readonly backends: readonly WeightedBackend[];
}

export interface Termination {
  /** Never empty. Chosen by server name; the first is for names that none has. */
  readonly certificates: readonly CertificateKey[];
  readonly minVersion: '1.2' | '1.3';
  /** Clients must show a certificate of these authorities; `optional`: none, or an invalid one, is accepted too; null: none is asked for. */
  readonly clients: { readonly authorities: readonly AuthorityKey[]; readonly optional: boolean } | null;
}

export interface HostTable {
  readonly hostname: HostPattern;
  /** The wildcard of `hostname` stands for exactly one label (Ingress), not for one or more. */
  readonly oneLabel: boolean;
  /** In the order of precedence of the API, with the rows of less specific hostnames of the same listener at their place. */
  readonly rows: readonly RouteRow[];
}

/** One match of one rule. */
export interface RouteRow {
  /** Unique in the map: "httproute/NAMESPACE/NAME/RULE/MATCH", "ingress/NAMESPACE/NAME/RULE/PATH". */
  readonly id: string;
  readonly route: RouteRef;
  readonly path: PathMatch;
  /** null: any. */
  readonly method: string | null;
  readonly headers: readonly ValueMatch[];
  readonly query: readonly ValueMatch[];
  readonly action: RouteAction;
}

export interface RouteRef {
  readonly kind: 'HTTPRoute' | 'GRPCRoute' | 'TLSRoute' | 'TCPRoute' | 'UDPRoute' | 'Ingress';
  readonly namespace: string;
  readonly name: string;
  /** Index of the rule; of an Ingress, of its host rule (-1: the default backend). */
  readonly rule: number;
}

export type PathMatch =
  | { readonly kind: 'exact'; readonly path: string }
  /** By whole segments; "/" matches everything; without a final slash otherwise. */
  | { readonly kind: 'prefix'; readonly path: string }
  /** The whole path matches; syntax of RE2, checked. Renderings use `portableRegex` of it (regex.ts), which every engine reads alike. */
  | { readonly kind: 'regex'; readonly regex: string };

export interface ValueMatch {
  /** Names of headers in lower case. A header matches by any of its lines, whole; a parameter by its first value, as sent. */
  readonly name: string;
  readonly kind: 'exact' | 'regex';
  readonly value: string;
}

export type RouteAction =
  | {
      readonly kind: 'redirect';
      /** null: that of the request. */
      readonly scheme: 'http' | 'https' | null;
      /** null: that of the request. */
      readonly host: string | null;
      /** null: the scheme's own port if `scheme` is set, else that of the listener. Left out where it is the scheme's own. */
      readonly port: number | null;
      readonly path: PathRewrite | null;
      readonly status: 301 | 302 | 303 | 307 | 308;
      readonly response: HeaderChanges;
    }
  | Forward
  /** Answered by the gateway itself. `reason` is for people. */
  | { readonly kind: 'error'; readonly status: number; readonly reason: string };

export interface Forward {
  readonly kind: 'forward';
  readonly protocol: 'http' | 'grpc';
  /** Not all of weight 0. */
  readonly backends: readonly WeightedBackend[];
  readonly request: HeaderChanges;
  readonly response: HeaderChanges;
  readonly rewrite: { readonly host: string | null; readonly path: PathRewrite | null } | null;
  readonly mirrors: readonly Mirror[];
  readonly cors: Cors | null;
  /** Milliseconds; null: no limit. */
  readonly timeouts: {
    readonly request: number | null;
    readonly backend: number | null;
    readonly connect: number | null;
  };
  readonly retry: {
    readonly attempts: number;
    readonly statuses: readonly number[];
    readonly backoffMs: number;
  } | null;
  readonly affinity: CookieAffinity | null;
  /** Bytes of a request's body; null: no limit. */
  readonly bodyLimit: number | null;
  /** CIDRs that clients must be of; empty: all. */
  readonly sources: readonly string[];
}

export interface WeightedBackend {
  /** null: forbidden, missing or of an unknown kind; its share is answered with 500, for gRPC with 503 (UNAVAILABLE). */
  readonly backend: BackendKey | null;
  /** 0 to 1,000,000. */
  readonly weight: number;
  readonly request: HeaderChanges;
  readonly response: HeaderChanges;
  readonly reason: string | null;
}

export interface Backend {
  readonly key: BackendKey;
  readonly namespace: string;
  readonly service: string;
  readonly port: number;
  /** By the port's appProtocol and the kind of route. */
  readonly protocol: 'http1' | 'h2c' | 'websocket' | 'tcp' | 'udp';
  /** Connections to the endpoints are encrypted (BackendTLSPolicy); null: in plain text. */
  readonly tls: BackendTls | null;
}

export interface BackendTls {
  /** Server name of the ClientHello, and the name that the certificate must have unless `names` is set. */
  readonly hostname: string;
  readonly names: readonly string[];
  /** Empty: the system's authorities. */
  readonly authorities: readonly AuthorityKey[];
  readonly certificate: CertificateKey | null;
  /** false: certificates are not verified (Ingress's backend-protocol HTTPS, as ingress-nginx does). */
  readonly verify: boolean;
}

/** In this order: remove, set, add. Names in lower case. */
export interface HeaderChanges {
  readonly set: readonly HeaderValue[];
  readonly add: readonly HeaderValue[];
  readonly remove: readonly string[];
}

export interface HeaderValue {
  readonly name: string;
  readonly value: string;
}

export type PathRewrite =
  | { readonly kind: 'full'; readonly path: string }
  /** Replaces the matched prefix of the row's path. */
  | { readonly kind: 'prefix'; readonly path: string }
  /** Replaces the whole path; "$1" to "$9" are the captures of the row's regex. */
  | { readonly kind: 'captures'; readonly path: string };

export interface Mirror {
  readonly backend: BackendKey;
  /** Share of requests: numerator of denominator. */
  readonly numerator: number;
  readonly denominator: number;
}

export interface Cors {
  /** "https://example.com", "https://*.example.com", "https://*" or "*"; matched by `originAllowed` (cors.ts). */
  readonly origins: readonly string[];
  readonly methods: readonly string[];
  readonly headers: readonly string[];
  readonly exposed: readonly string[];
  readonly credentials: boolean;
  /** Seconds. */
  readonly maxAge: number;
}

export interface CookieAffinity {
  readonly cookie: string;
  /** Seconds; null: until the client ends its session. */
  readonly lifetime: number | null;
}
