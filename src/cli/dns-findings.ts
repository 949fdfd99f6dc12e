import type { Finding } from '../agent/preflight-finding.ts';
import type { NodePreflight } from '../cluster/remote-preflight.ts';
import { type Client, hasReason } from '../kube/client.ts';
import { canonicalAddress } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import { type DnsAddress, findDnsAddress } from './cluster-dns-address.ts';

/** The name servers that a kubelet gives to pods, or why they are not known. */
export type KubeletDns = { readonly servers: readonly string[] } | { readonly unknown: string };

/** Adds to each node whether its kubelet gives pods the address of the cluster's DNS. */
export async function withDnsFindings(
  client: Pick<Client, 'get' | 'list' | 'request'>,
  results: readonly NodePreflight[],
  signal: AbortSignal,
): Promise<NodePreflight[]> {
  const address = await findDnsAddress(client, signal).catch((error: unknown) => {
    if (hasReason(error, 'Forbidden')) return null;
    throw error;
  });
  return await Promise.all(
    results.map(async (result) => {
      if (result.problem !== null) return result;
      const finding = dnsFinding(address, await readKubeletDns(client, result.node, signal));
      return { ...result, findings: [...result.findings, finding] };
    }),
  );
}

/** Reads `clusterDNS` of a kubelet's configuration. */
async function readKubeletDns(
  client: Pick<Client, 'request'>,
  node: string,
  signal: AbortSignal,
): Promise<KubeletDns> {
  try {
    const answer = (await client.request('GET', `/api/v1/nodes/${node}/proxy/configz`, undefined, {
      signal,
    })) as {
      readonly kubeletconfig?: { readonly clusterDNS?: readonly string[] };
    };
    return { servers: answer.kubeletconfig?.clusterDNS ?? [] };
  } catch (error) {
    return { unknown: hasReason(error, 'Forbidden') ? 'you may not get nodes/proxy' : messageOf(error) };
  }
}

/** Compares the cluster IP of DNS (null: not known) with the name servers of a node's pods. */
export function dnsFinding(dns: DnsAddress | null, kubelet: KubeletDns): Finding {
  if ('unknown' in kubelet) {
    const of = dns === null ? 'is not known' : `is ${dns.address} (${dns.source})`;
    return {
      level: 'note',
      what: `the cluster IP of DNS ${of}; the name servers that the kubelet gives to pods cannot be read: ${kubelet.unknown}`,
      fix: "compare it with clusterDNS in the kubelet's configuration",
    };
  }
  const servers = kubelet.servers.map((server) => canonicalAddress(server) ?? server);
  const given = servers.join(', ') || 'none';
  if (dns === null)
    return {
      level: 'note',
      what: `the cluster IP of DNS is not known; the kubelet gives pods the name servers ${given}`,
      fix: `install parts with DNS with --dns-address ${servers[0] ?? 'ADDRESS'}`,
    };
  if (servers.includes(dns.address))
    return {
      level: 'ok',
      what: `the kubelet gives pods ${dns.address}, the cluster IP of DNS (${dns.source})`,
      fix: null,
    };
  // A cache on the node (NodeLocal DNSCache) asks the cluster IP itself.
  const isLocal = servers.some((server) => /^(169\.254\.|fe80:)/.test(server));
  return {
    level: isLocal ? 'note' : 'problem',
    what: `the kubelet gives pods the name servers ${given}, and the cluster IP of DNS is ${dns.address} (${dns.source})`,
    fix: `set clusterDNS: [${dns.address}] in the kubelet's configuration, or install parts with DNS with --dns-address ${servers[0] ?? dns.address}`,
  };
}
