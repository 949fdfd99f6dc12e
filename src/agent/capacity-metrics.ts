import { X509Certificate } from 'node:crypto';
import { Gauge, type Registry } from 'prom-client';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { readSysctl } from '../kernel/sysctl.ts';
import { readContext } from '../kube/kubeconfig.ts';
import { ADDRESS_ALLOCATED, allocatedAddresses, wantsAddress } from '../kube/load-balancer.ts';
import type { Service } from '../kube/types.ts';
import { type AddressRange, parseAddressRange, rangeContains } from '../lib/address-range.ts';
import { REFUSAL_REASONS } from '../loadbalancer/address-pools.ts';
import type { PoolUsage } from '../network/assigned-addresses.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { servingStore } from './identity/node-identity.ts';
import type { PoolConfiguration } from './load-balancer-pools.ts';

/** Gauges of what a node can run out of. Each is read at the scrape. */

/** Returns a function that creates a gauge of a registry. */
const gauges =
  (registry: Registry) =>
  (name: string, help: string, labelNames: string[], collect: (gauge: Gauge) => void): void => {
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        // A gauge without labels is otherwise 0 before its first value.
        if (labelNames.length === 0) this.remove();
        else this.reset();
        collect(this);
      },
    });
  };

/** Registers the size of the kernel's table of connections; without connection tracking there are no series. */
export function registerConnectionTable(registry: Registry, read: typeof readSysctl = readSysctl): void {
  const gauge = gauges(registry);
  const show = (name: string, of: Gauge) => {
    const value = read(`net.netfilter.${name}`);
    if (value !== null) of.set(Number(value));
  };
  gauge('fairlead_conntrack_entries', "Entries in the kernel's table of connections", [], (of) =>
    show('nf_conntrack_count', of),
  );
  gauge('fairlead_conntrack_limit', 'Entries that this table can hold', [], (of) =>
    show('nf_conntrack_max', of),
  );
}

/** Registers the addresses of this node's pod networks. */
export function registerPodAddresses(registry: Registry, usage: () => readonly PoolUsage[]): void {
  const gauge = gauges(registry);
  gauge(
    'fairlead_pod_network_addresses',
    "Addresses for pods in the node's pod networks",
    ['network'],
    (of) => {
      for (const { network, size } of usage()) of.set({ network }, Number(size));
    },
  );
  gauge('fairlead_pod_network_used_addresses', 'Those that pods have', ['network'], (of) => {
    for (const { network, used } of usage()) of.set({ network }, used);
  });
}

/**
 * Registers the addresses of load-balancer pools and what Services have of them, the same on all nodes. The series are
 * bounded by the configuration: statuses of Services are not a source of labels.
 */
export function registerPools(
  registry: Registry,
  pools: Readonly<Record<string, PoolConfiguration>>,
  services: () => readonly Service[],
): void {
  const gauge = gauges(registry);
  const ranges = Object.entries(pools).map(([pool, { addresses }]) => ({
    pool,
    ranges: addresses.flatMap((text) => parseAddressRange(text) ?? []),
  }));
  const assigned = () => new Set(services().flatMap(allocatedAddresses));
  gauge('fairlead_load_balancer_pool_addresses', 'Addresses of a pool', ['pool'], (of) => {
    for (const { pool, ranges: own } of ranges)
      of.set({ pool }, Number(own.reduce((sum, range) => sum + sizeOf(range), 0n)));
  });
  gauge(
    'fairlead_load_balancer_pool_used_addresses',
    'Addresses of a pool that Services have',
    ['pool'],
    (of) => {
      const used = [...assigned()];
      for (const { pool, ranges: own } of ranges)
        of.set({ pool }, used.filter((address) => own.some((range) => rangeContains(range, address))).length);
    },
  );
  gauge(
    'fairlead_load_balancer_assigned_addresses',
    'Addresses that Services have from all pools',
    [],
    (of) => of.set(assigned().size),
  );
  gauge(
    'fairlead_load_balancer_waiting_services',
    'Services that lack an address that they should have, by the reason of the condition fairlead.dev/AddressAllocated',
    ['reason'],
    (of) => {
      for (const reason of REFUSAL_REASONS) of.set({ reason }, 0);
      for (const service of services().filter(wantsAddress)) {
        const found = service.status?.conditions?.find(({ type }) => type === ADDRESS_ALLOCATED);
        const reason = REFUSAL_REASONS.find((one) => one === found?.reason);
        if (found?.status === 'False' && reason) of.inc({ reason });
      }
    },
  );
}

/** Returns the number of addresses that are assigned without a request: not the ends of a network. */
function sizeOf({ first, last, isNetwork }: AddressRange): bigint {
  const ends = isNetwork && last - first > 1n ? 2n : 0n;
  return last - first + 1n - ends;
}

/** Registers when the certificates of this node's files expire. Those that the agent makes for itself have no series. */
export function registerCertificates(registry: Registry, configuration: AgentConfiguration): void {
  const { kubeconfig, loadBalancer, pods, stateDir } = configuration;
  const ofKubeconfig = (file: string | null | undefined) => () =>
    file ? (readContext(file).credentials.cert ?? null) : null;
  const files: readonly (readonly [name: string, read: () => string | null])[] = [
    ['client', ofKubeconfig(kubeconfig)],
    ['announcer', ofKubeconfig(loadBalancer?.kubeconfig)],
    ['serving', () => servingCertificate(pods, stateDir)],
  ];
  const gauge = gauges(registry);
  const show = (of: Gauge, time: (certificate: X509Certificate) => string) => {
    for (const [certificate, read] of files) {
      const found = readCertificate(read);
      if (found) of.set({ certificate }, Date.parse(time(found)) / 1000);
    }
  };
  gauge(
    'fairlead_certificate_not_after_seconds',
    "When a certificate of this node expires (Unix time): the client's of the API server, the announcer's of addresses, that of the node's HTTPS server",
    ['certificate'],
    (of) => show(of, ({ validTo }) => validTo),
  );
  gauge('fairlead_certificate_not_before_seconds', 'When it began to be valid', ['certificate'], (of) =>
    show(of, ({ validFrom }) => validFrom),
  );
}

function servingCertificate(pods: AgentConfiguration['pods'], stateDir: string): string | null {
  if (pods === null) return null;
  if (pods.serverTLSBootstrap) return servingStore(stateDir).read()?.cert ?? null;
  return pods.tls.cert === '' ? null : readOptionalFile(pods.tls.cert);
}

function readCertificate(read: () => string | null): X509Certificate | null {
  try {
    const text = read();
    return text === null ? null : new X509Certificate(text);
  } catch {
    // The part that uses the file reports what is wrong with it; the other metrics are still served.
    return null;
  }
}
