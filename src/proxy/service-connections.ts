import { Counter, Gauge, type Registry } from 'prom-client';
import type { Mode } from '../dataplane/dataplane.ts';
import { formatAddress, type IPFamily } from '../lib/address.ts';
import type { Frontend, ServiceMap } from '../service/model.ts';
import { frontendKey } from '../service/service-compiler.ts';

/** Counts connections to Services, for metrics. */
export interface ServiceConnections {
  /**
   * Counts a connection by the event of its entry (ctnetlink). `weight`: how many it stands for, while not all are
   * watched.
   */
  count(event: Uint8Array, weight: number): void;
}

/** Services with series of their own; the connections of further ones are counted together. */
const MAX_SERVICES = 1000;
/** Destinations between two scrapes: frontends, and node ports at each address of the node. */
const MAX_DESTINATIONS = 65_536;

// Offsets after struct nlmsghdr: an event begins with struct nfgenmsg and the original tuple.
const AF_INET = 2;
const IPV4 = { address: 24, port: 52 } as const;
const IPV6 = { address: 36, port: 76 } as const;

/** Modes whose connections to Services have an entry with the Service's address. */
const COUNTED: ReadonlySet<Mode> = new Set(['nftables', 'iptables', 'ipvs']);

/**
 * Registers the number of TCP connections to each Service. The events are those by which failover watches connections, so that
 * nothing more is asked of the kernel; above their highest rate a sample is watched, and counted with its weight.
 */
export function createServiceConnections(options: {
  readonly registry: Registry;
  readonly map: () => ServiceMap | null;
  readonly mode: () => Mode;
  readonly maxServices?: number;
}): ServiceConnections {
  const { registry, map, mode, maxServices = MAX_SERVICES } = options;
  /** Since the last scrape, by the bytes of address and port. */
  const fresh = new Map<string, number>();
  /** By "namespace/name"; "": further Services. */
  const totals = new Map<string, number>();
  let further = 0;

  /** Adds what came since the last scrape to the Services of the present map. */
  function settle(): void {
    const present = map();
    if (present === null) return;
    const owners = new Set([...present.frontends.values()].map(ownerOf));
    for (const key of totals.keys()) if (!owners.has(key)) totals.delete(key);
    for (const [destination, connections] of fresh) {
      const frontend = frontendAt(present, destination);
      // A host port, or a Service that is gone.
      if (!frontend) continue;
      const key = ownerOf(frontend);
      if (totals.has(key) || totals.size < maxServices) totals.set(key, (totals.get(key) ?? 0) + connections);
      else further += connections;
    }
    fresh.clear();
  }

  const registers = [registry];
  new Counter({
    name: 'fairlead_service_connections_total',
    help: `TCP connections to a Service that this node forwarded, in nftables, iptables and IPVS mode; those of more than ${MAX_SERVICES} Services are counted with an empty name.`,
    labelNames: ['namespace', 'service'],
    registers,
    collect() {
      settle();
      this.reset();
      for (const [key, connections] of totals) {
        const [namespace = '', service = ''] = key.split('/');
        this.inc({ namespace, service }, connections);
      }
      if (further > 0) this.inc({ namespace: '', service: '' }, further);
    },
  });
  new Gauge({
    name: 'fairlead_service_connections_counted',
    help: 'Whether the mode of this node counts connections to Services (0 or 1).',
    labelNames: ['mode'],
    registers,
    collect() {
      this.reset();
      this.set({ mode: mode() }, COUNTED.has(mode()) ? 1 : 0);
    },
  });
  return {
    count(event, weight) {
      if (!COUNTED.has(mode())) return;
      const at = event[0] === AF_INET ? IPV4 : IPV6;
      const size = event[0] === AF_INET ? 4 : 16;
      const bytes = Buffer.from(event.buffer, event.byteOffset, event.byteLength);
      const key =
        bytes.toString('latin1', at.address, at.address + size) +
        bytes.toString('latin1', at.port, at.port + 2);
      const known = fresh.get(key);
      if (known === undefined && fresh.size >= MAX_DESTINATIONS) further += weight;
      else fresh.set(key, (known ?? 0) + weight);
    },
  };
}

const ownerOf = ({ owner }: Frontend): string => `${owner.namespace}/${owner.name}`;

function frontendAt({ frontends }: ServiceMap, destination: string): Frontend | undefined {
  const bytes = Buffer.from(destination, 'latin1');
  const family: IPFamily = bytes.length === 6 ? 'ipv4' : 'ipv6';
  const address = formatAddress(bytes.subarray(0, -2));
  const port = bytes.readUInt16BE(bytes.length - 2);
  return (
    frontends.get(frontendKey(family, address, 'TCP', port)) ??
    frontends.get(frontendKey(family, null, 'TCP', port))
  );
}
