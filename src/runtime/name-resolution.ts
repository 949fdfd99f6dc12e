import type { Pod } from '../kube/types.ts';
import { KubeletError } from './kubelet-error.ts';

export interface ResolverSettings {
  readonly clusterDns: readonly string[];
  /** Other nodes' name servers with the same data, used when the first does not answer. */
  readonly fallbackDns?: readonly string[];
  readonly clusterDomain: string;
  /** The node's own resolv.conf. */
  readonly nodeResolvConf: string;
}

/** Returns the text of a pod's /etc/resolv.conf, by its dnsPolicy and dnsConfig. */
export function resolvConf(pod: Pod, settings: ResolverSettings): string {
  const spec = pod.spec;
  const namespace = pod.metadata?.namespace ?? 'default';
  const policy = spec?.dnsPolicy ?? 'ClusterFirst';
  const node = parseResolvConf(settings.nodeResolvConf);
  const { clusterDomain, clusterDns } = settings;
  const asksCluster =
    policy === 'ClusterFirst' ? spec?.hostNetwork !== true : policy === 'ClusterFirstWithHostNet';
  // As upstream's kubelet: without a cluster DNS, pods resolve as the node.
  const inCluster = asksCluster && clusterDns.length > 0;
  const base =
    policy === 'None'
      ? { nameservers: [], searches: [], options: [] }
      : inCluster
        ? {
            nameservers: [...clusterDns],
            searches: [
              `${namespace}.svc.${clusterDomain}`,
              `svc.${clusterDomain}`,
              clusterDomain,
              ...node.searches,
            ],
            options: ['ndots:5'],
          }
        : node;
  const extra = spec?.dnsConfig;
  // The node's other addresses belong to the same server as the first: last, if there is room (MAXNS, resolv.conf(5)).
  const fallback = inCluster ? (settings.fallbackDns ?? []) : [];
  const [first, others] =
    fallback.length > 0 ? [base.nameservers.slice(0, 1), base.nameservers.slice(1)] : [base.nameservers, []];
  const nameservers = [...new Set([...first, ...(extra?.nameservers ?? []), ...fallback, ...others])].slice(
    0,
    3,
  );
  const searches = fittingSearches([...new Set([...base.searches, ...(extra?.searches ?? [])])]);
  const options = new Map<string, string>();
  for (const option of base.options) options.set(option.split(':')[0] ?? option, option);
  for (const { name = '', value } of extra?.options ?? []) {
    options.set(name, value === undefined || value === '' ? name : `${name}:${value}`);
  }
  return [
    ...(searches.length > 0 ? [`search ${searches.join(' ')}`] : []),
    ...nameservers.map((server) => `nameserver ${server}`),
    ...(options.size > 0 ? [`options ${[...options.values()].join(' ')}`] : []),
    '',
  ].join('\n');
}

/**
 * Applies the resolver's limits of search domains, as the kubelet does: 32, and 2048 characters including separators.
 */
function fittingSearches(searches: readonly string[]): string[] {
  const fitting: string[] = [];
  let length = -1;
  for (const search of searches.slice(0, 32)) {
    length += search.length + 1;
    if (length > 2048) break;
    fitting.push(search);
  }
  return fitting;
}

function parseResolvConf(text: string) {
  const result = { nameservers: [] as string[], searches: [] as string[], options: [] as string[] };
  for (const line of text.split('\n')) {
    const [word, ...rest] = line.trim().split(/\s+/);
    if (word === 'nameserver' && rest[0]) result.nameservers.push(rest[0]);
    if (word === 'search' || word === 'domain') result.searches = rest;
    if (word === 'options') result.options.push(...rest);
  }
  return result;
}

/** The parts of the node that affect a pod's names. */
export interface NameSettings {
  readonly nodeName: string;
  readonly clusterDomain: string;
}

/**
 * Returns a pod's host name: the node's if it uses the node's network; else hostnameOverride (KEP-4762), its
 * `hostname`, or its name, truncated to the kernel's limit.
 */
export function podHostname(pod: Pod, nodeName: string): string {
  const { hostNetwork, hostname, hostnameOverride } = pod.spec ?? {};
  const name = hostNetwork ? nodeName : hostnameOverride || hostname || pod.metadata?.name || 'pod';
  return name.slice(0, hostnameOverride ? 64 : 63).replace(/[-.]+$/, '');
}

/** Returns the kernel's host name of the pod: with setHostnameAsFQDN and a subdomain the full name, up to 64 bytes. */
export function kernelHostname(pod: Pod, { nodeName, clusterDomain }: NameSettings): string {
  const { setHostnameAsFQDN, subdomain, hostNetwork, hostnameOverride } = pod.spec ?? {};
  const hostname = podHostname(pod, nodeName);
  if (!setHostnameAsFQDN || !subdomain || hostNetwork || hostnameOverride) return hostname;
  const name = `${hostname}.${subdomain}.${pod.metadata?.namespace}.svc.${clusterDomain}`;
  if (name.length <= 64) return name;
  throw new KubeletError(
    'FailedCreatePodSandBox',
    `the host name ${name} is longer than 64 bytes; remove setHostnameAsFQDN`,
    { op: 'create sandbox' },
  );
}

/** Returns the text of a pod's /etc/hosts. `nodeHosts`: the node's own file, for pods on the host network. */
export function hostsFile(
  pod: Pod,
  ips: readonly string[],
  { nodeName, clusterDomain }: NameSettings,
  nodeHosts: string,
): string {
  const aliases = (pod.spec?.hostAliases ?? []).map(
    ({ ip, hostnames }) => `${ip}\t${(hostnames ?? []).join('\t')}`,
  );
  const tail = aliases.length > 0 ? ['', '# Entries added by HostAliases.', ...aliases] : [];
  if (pod.spec?.hostNetwork) return [nodeHosts.trimEnd(), ...tail, ''].join('\n');
  const hostname = podHostname(pod, nodeName);
  const { subdomain } = pod.spec ?? {};
  const full = subdomain ? `${hostname}.${subdomain}.${pod.metadata?.namespace}.svc.${clusterDomain}\t` : '';
  return [
    '# Kubernetes-managed hosts file.',
    '127.0.0.1\tlocalhost',
    '::1\tlocalhost ip6-localhost ip6-loopback',
    'fe00::0\tip6-localnet',
    'fe00::0\tip6-mcastprefix',
    'fe00::1\tip6-allnodes',
    'fe00::2\tip6-allrouters',
    ...ips.map((ip) => `${ip}\t${full}${hostname}`),
    ...tail,
    '',
  ].join('\n');
}
