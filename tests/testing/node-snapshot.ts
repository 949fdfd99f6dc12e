import type { Place, RealCluster } from './real-cluster.ts';

/** What programs write to a node's kernel and files to provide its network: line by line. */
export type NodeSnapshot = Readonly<Record<string, readonly string[]>>;

/** Chains that a kubelet keeps by itself. */
const KUBELET = /KUBE-(KUBELET-CANARY|FIREWALL|IPTABLES-HINT)/;
const FOLDERS = ['/etc/cni/net.d', '/opt/cni/bin', '/var/lib/fairlead/agent', '/sys/fs/bpf'];

const WHAT: Readonly<Record<string, readonly string[]>> = {
  'nftables tables': ['nft', 'list', 'tables'],
  'iptables rules': ['iptables-save'],
  'ip6tables rules': ['ip6tables-save'],
  links: ['ip', '-oneline', 'link'],
  addresses: ['ip', '-oneline', 'address', 'show', 'scope', 'global'],
  'loopback addresses': ['ip', '-oneline', 'address', 'show', 'dev', 'lo'],
  'IPv4 routes': ['ip', 'route', 'show', 'table', 'main'],
  'IPv6 routes': ['ip', '-6', 'route', 'show', 'table', 'main'],
  rules: ['ip', 'rule'],
  files: ['sh', '-c', `find ${FOLDERS.join(' ')} -mindepth 1 2>/dev/null || true`],
};

/** Reads the state of a node's network; counters and what the kubelet writes are left out. */
export async function snapshotNode(cluster: RealCluster, node: string): Promise<NodeSnapshot> {
  const place: Place = `node/${node}`;
  const entries = Object.entries(WHAT).map(async ([what, words]) => {
    const { out } = await cluster.run(place, ...words);
    return [what, linesOf(what, out)] as const;
  });
  return Object.fromEntries(await Promise.all(entries));
}

function linesOf(what: string, text: string): string[] {
  const lines = text.split('\n').filter((line) => line !== '' && !KUBELET.test(line));
  switch (what) {
    case 'nftables tables':
      // Tables that iptables makes to list its rules.
      return lines.filter((line) => !/^table ip6? (mangle|filter|nat|raw|security)$/.test(line)).sort();
    case 'iptables rules':
    case 'ip6tables rules':
      // Rules, and chains of other programs.
      return lines.filter((line) => /^-A|^:\S+ - /.test(line)).map((line) => line.replace(/ \[.*/, ''));
    case 'links':
      return lines.map((line) => line.split(/:? /)[1] ?? '').sort();
    default:
      return lines.sort();
  }
}
