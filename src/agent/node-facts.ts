import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { NETNS_DIR, type NetnsRef, OWN_NETNS } from '../kernel/netns.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../kernel/rtnetlink/links.ts';
import type { Informer } from '../kube/informer.ts';
import type { Service } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import type { LocalFactRequest, Place } from '../observe/fact-requests.ts';
import type { FactAnswer } from '../observe/facts.ts';
import { gatherFact, type LocalPlace, placeText } from '../observe/gather-facts.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { badRequest } from './bad-request.ts';

/** The body of a request for a fact: what this node can read of itself or of one of its pods. */
export interface FactBody {
  readonly request: LocalFactRequest;
  /** Null: the place is the node. */
  readonly pod: FactPod | null;
}

/** Facts about a pod that the agent lacks. */
export interface FactPod {
  readonly addresses: readonly string[];
  /** Whose name servers its resolv.conf names. The agent asks no others. */
  readonly nameServers: 'cluster' | 'node';
  /** Of its dnsConfig. */
  readonly searches: readonly string[];
  readonly options: readonly string[];
  /** Lines of its hosts(5) file. */
  readonly hosts: readonly string[];
}

const MAX_KNOWN = 512;
const DNS_SERVICES: readonly string[] = ['kube-dns', 'coredns', 'rke2-coredns-rke2-coredns'];

/** Collects a fact on this node. Throws FairleadError if the request is malformed; other failures are answers. */
export async function answerFact(
  configuration: AgentConfiguration,
  services: Pick<Informer<Service>, 'list'>,
  body: Partial<FactBody> | null,
): Promise<FactAnswer> {
  const { request, pod = null } = body ?? {};
  const kinds = ['sockets', 'route', 'fault', 'filters', 'names'];
  if (!request || !kinds.includes(request.kind) || typeof request.place?.kind !== 'string')
    throw badRequest('request is not a question about a place');
  const resolver = resolverOf(configuration, services.list(), request.place, pod);
  return await gatherFact(request, (place) => placeOnNode(configuration.nodeName, place, pod, resolver));
}

function placeOnNode(node: string, place: Place, pod: FactPod | null, resolvConf: () => string): LocalPlace {
  if (place.kind === 'host' || place.node !== node)
    throw new FairleadError(`${placeText(place)} is not on node ${node}`, {
      op: 'read a fact',
      code: 'no-node',
    });
  return {
    netns: place.kind === 'pod' ? netnsWith(pod?.addresses ?? []) : OWN_NETNS,
    controlGroup: null,
    resolvConf,
    hosts: () => (pod ? pod.hosts.join('\n') : (readOptionalFile('/etc/hosts') ?? '')),
  };
}

/** Returns a function that finds a pod's network namespace, and tries the one that it found before first. */
export function createNetnsFinder(): (addresses: readonly string[]) => NetnsRef {
  const known = new Map<string, NetnsRef>();
  return (addresses) => {
    const key = addresses.join();
    const before = known.get(key);
    if (before && hasAddress(before, addresses)) return before;
    const found = netnsWith(addresses);
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(key, found);
    return found;
  };
}

/** Finds the network namespace with a pod's addresses among those that container runtimes have mounted. */
function netnsWith(addresses: readonly string[]): NetnsRef {
  for (const name of readNamespaces()) {
    const path = join(NETNS_DIR, name);
    if (hasAddress({ path }, addresses)) return { path };
  }
  throw new FairleadError(`no network namespace in ${NETNS_DIR} has the address ${addresses.join(', ')}`, {
    op: 'find network namespace',
    code: 'ENOENT',
    hint: `mount ${NETNS_DIR} into the agent's container with propagation HostToContainer`,
  });
}

function readNamespaces(): string[] {
  try {
    return readdirSync(NETNS_DIR);
  } catch {
    return [];
  }
}

function hasAddress(netns: NetnsRef, addresses: readonly string[]): boolean {
  try {
    using socket = openRouteSocket(netns);
    return listAddresses(socket).some(({ address }) => addresses.includes(address));
  } catch {
    // It was removed meanwhile, or is a file that an unmounted namespace left.
    return false;
  }
}

/**
 * Returns the resolv.conf of a place as the kubelet writes it. Its name servers are those of this cluster or of this node,
 * whatever the request says: who may only look shall not send packets to other addresses.
 */
function resolverOf(
  { clusterDomain, dns }: Pick<AgentConfiguration, 'clusterDomain' | 'dns'>,
  services: readonly Service[],
  place: Place,
  pod: FactPod | null,
): () => string {
  if (!pod || pod.nameServers === 'node') return () => readOptionalFile('/etc/resolv.conf') ?? '';
  const namespace = 'name' in place ? (place.name.split('/')[0] ?? '') : '';
  const found = services.find(
    ({ metadata }) =>
      metadata?.namespace === 'kube-system' &&
      (metadata.labels?.['k8s-app'] === 'kube-dns' || DNS_SERVICES.includes(metadata.name ?? '')),
  );
  const servers = dns && dns.addresses.length > 0 ? dns.addresses : (found?.spec?.clusterIPs ?? []);
  const domains = [`${namespace}.svc.${clusterDomain}`, `svc.${clusterDomain}`, clusterDomain];
  const text = [
    ...servers.map((server) => `nameserver ${server}`),
    `search ${[...domains, ...pod.searches].join(' ')}`,
    `options ndots:5 ${pod.options.join(' ')}`,
  ].join('\n');
  return () => text;
}
