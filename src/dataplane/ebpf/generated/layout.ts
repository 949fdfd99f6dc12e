// Written by tools/build-bpf.mjs from the types of bpf/; do not edit.
// biome-ignore format: generated

/** The maps; those with maxEntries 1 that are not `config` grow with the cluster. */
export const MAPS = {
  affinities: { name: 'fl_affinities', kind: 'lruHash', keySize: 16, valueSize: 32, maxEntries: 65536, flags: 0 },
  backends: { name: 'fl_backends', kind: 'array', keySize: 4, valueSize: 40, maxEntries: 1, flags: 1024 },
  config: { name: 'fl_config', kind: 'array', keySize: 4, valueSize: 32, maxEntries: 1, flags: 0 },
  endpoints: { name: 'fl_endpoints', kind: 'array', keySize: 4, valueSize: 28, maxEntries: 1, flags: 1024 },
  events: { name: 'fl_events', kind: 'ringbuf', keySize: 0, valueSize: 0, maxEntries: 262144, flags: 0 },
  flags: { name: 'fl_flags', kind: 'array', keySize: 4, valueSize: 8, maxEntries: 3, flags: 0 },
  frontends: { name: 'fl_frontends', kind: 'hash', keySize: 20, valueSize: 36, maxEntries: 1, flags: 1 },
  members: { name: 'fl_members', kind: 'hash', keySize: 24, valueSize: 8, maxEntries: 1, flags: 1 },
  peers: { name: 'fl_peers', kind: 'skStorage', keySize: 4, valueSize: 56, maxEntries: 0, flags: 1 },
  pending_sets: { name: 'fl_pending_sets', kind: 'array', keySize: 4, valueSize: 336, maxEntries: 1024, flags: 0 },
  removed_backends: { name: 'fl_removed_back', kind: 'lruHash', keySize: 20, valueSize: 4, maxEntries: 4096, flags: 0 },
  reroutes: { name: 'fl_reroutes', kind: 'lruHash', keySize: 40, valueSize: 32, maxEntries: 32768, flags: 0 },
  service_networks: { name: 'fl_service_netw', kind: 'lpmTrie', keySize: 20, valueSize: 4, maxEntries: 1, flags: 1 },
  udp_sessions: { name: 'fl_udp_sessions', kind: 'skStorage', keySize: 4, valueSize: 296, maxEntries: 0, flags: 1 },
} as const;

// Structures: size, and offset of each field, in bytes.
export const ADDRESS = { size: 16, word: 0 } as const;
export const AFFINITY = { size: 32, at: 0, address: 8, port: 24, zero: 26, also_zero: 28 } as const;
export const AFFINITY_KEY = { size: 16, client: 0, frontend: 8, zero: 12 } as const;
export const BACKEND = { size: 40, ejected_until: 0, failed_at: 8, failed_socket: 16, ejections: 24, open: 28, generation: 32, probing: 36 } as const;
export const CONFIG = { size: 32, node_cookie: 0, syn_timeout: 8, ejection: 12, reroute: 16, removed_backends: 20, subscribers: 24, zero: 28 } as const;
export const ENDPOINT = { size: 28, address: 0, port: 16, zero: 18, owner: 20, backend: 24 } as const;
export const EVENT = { size: 72, at: 0, client: 8, service: 24, endpoint: 40, client_port: 56, service_port: 58, endpoint_port: 60, protocol: 62, zero: 63, micros: 64, kind: 68 } as const;
export const FLAG_VALUE = { size: 8, is_set: 0, zero: 4 } as const;
export const FLOW = { size: 40, client: 0, server: 16, client_port: 32, server_port: 34, protocol: 36, zero: 37 } as const;
export const FRONTEND = { size: 36, id: 0, affinity_seconds: 4, balance: 8, routes: 12 } as const;
export const FRONTEND_KEY = { size: 20, address: 0, port: 16, protocol: 18, zero: 19 } as const;
export const MEMBER = { size: 24, first: 0, address: 4, port: 20, zero: 22 } as const;
export const MEMBERSHIP = { size: 8, backend: 0, kind: 4 } as const;
export const NETWORK = { size: 20, prefix_length: 0, address: 4 } as const;
export const NETWORK_TIMER = { size: 4, syn_timeout: 0 } as const;
export const PEER = { size: 56, started: 0, service: 8, endpoint: 24, service_port: 40, endpoint_port: 42, backend: 44, counted: 48, flags: 52 } as const;
export const PENDING = { size: 76, flow: 0, service: 40, backend: 60, source_class: 64, reroutes: 68, ignored_timeouts: 72 } as const;
export const PENDING_SET = { size: 336, tags: 0, pending: 32 } as const;
export const REMOVED_BACKEND_KEY = { size: 20, address: 0, port: 16, protocol: 18, zero: 19 } as const;
export const REROUTE = { size: 32, address: 0, port: 16, direction: 18, source_class: 19, answered: 20, until: 24 } as const;
export const ROUTE = { size: 12, action: 0, first: 4, count: 8 } as const;
export const UDP_SESSION = { size: 36, service: 0, endpoint: 16, service_port: 32, endpoint_port: 34 } as const;
export const UDP_SESSIONS = { size: 296, session: 0, next: 288, reported: 292 } as const;

// Enums.
export const ACTION = { PASS: 0, FORWARD: 1, REFUSE: 2 } as const;
export const BALANCE = { RANDOM: 0, LEAST_CONNECTIONS: 1, MAGLEV: 2, BALANCE_MASK: 255, NO_FAILOVER: 256 } as const;
export const EVENT_KIND = { CHOSEN: 1, ESTABLISHED: 2, TIMED_OUT: 3, RESET: 4, EJECTED: 5, RECOVERED: 6, REROUTED: 7, CLOSED: 8, GIVEN_UP: 9, UNREACHABLE: 10, REJECTED: 11 } as const;
export const FLAG = { REROUTES: 0, FAILURES: 1, REROUTES_ENDED: 2 } as const;
export const MEMBER_KIND = { IN_RUN: 0, SPARED: 1 } as const;
export const PEER_FLAG = { PEER_NODE: 1, PEER_NO_FAILOVER: 2, PEER_REROUTED: 4, PEER_REPORTED: 8, PEER_COUNTED: 16 } as const;
export const SOURCE_CLASS = { POD: 0, NODE: 1 } as const;
