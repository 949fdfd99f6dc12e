import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { messageOf } from '../lib/errors.ts';
import { findKubeProxyState, isAnyLeft } from './kube-proxy-state.ts';
import { findRunningKubeProxy } from './running-kube-proxy.ts';

/** What one look at the node found. "note": worth knowing; "problem": the agent would not work. */
export interface Finding {
  readonly level: 'ok' | 'note' | 'problem';
  readonly what: string;
  /** What to do about it, or null. */
  readonly fix: string | null;
}

/** Reads a file of /proc; null: it is not there. */
export type ReadFile = (path: string) => string | null;

const NFPROTO_IPV4 = 2;
/** Below this, a node with many pods loses connections. */
const SMALL_CONNTRACK = 65_536;
const PORTS: readonly [port: number, purpose: string][] = [
  [10256, 'health checks'],
  [10249, 'metrics'],
];

/** Looks at this node for what would keep the agent from working. Changes nothing. */
export async function preflight(): Promise<Finding[]> {
  const running = await findRunningKubeProxy();
  const left = await findKubeProxyState({ mode: null, families: [] });
  return [
    ...checkMechanisms(),
    ...checkSettings((path) => readOptionalFile(path)?.trim() ?? null),
    running === null
      ? { level: 'ok', what: 'no kube-proxy runs', fix: null }
      : { level: 'problem', what: `kube-proxy runs (${running})`, fix: 'stop it; its rules stay meanwhile' },
    isAnyLeft(left)
      ? {
          level: 'note',
          what: `rules of a kube-proxy are there: ${[...left.iptables.map((variant) => `iptables (${variant})`), ...(left.nftables.length > 0 ? ['nftables'] : []), ...(left.ipvs ? ['ipvs'] : [])].join(', ')}`,
          fix: left.ipvs
            ? 'kube-proxy --cleanup, after the agent has started'
            : 'none is needed: the agent removes them when its own are programmed',
        }
      : { level: 'ok', what: 'no rules of a kube-proxy are there', fix: null },
    ...(running === null ? await Promise.all(PORTS.map(checkPort)) : []),
  ];
}

/** What the modes need of the kernel and of the machine's programs. */
function checkMechanisms(): Finding[] {
  const has = (file: string) =>
    (process.env['PATH'] ?? '').split(':').some((one) => existsSync(`${one}/${file}`));
  return [
    nftProblem(),
    has('iptables-restore')
      ? { level: 'ok', what: 'iptables mode: iptables-restore is there', fix: null }
      : {
          level: 'note',
          what: 'iptables mode: there is no iptables-restore',
          fix: 'install the package iptables',
        },
    existsSync('/proc/net/ip_vs')
      ? { level: 'ok', what: 'IPVS mode: the kernel has IPVS', fix: null }
      : {
          level: 'note',
          what: 'IPVS mode: the kernel has no IPVS',
          fix: 'modprobe ip_vs, or use another mode',
        },
    existsSync('/sys/fs/cgroup/cgroup.controllers') || existsSync('/sys/fs/cgroup/unified')
      ? { level: 'ok', what: 'eBPF mode: there is a cgroup v2 hierarchy', fix: null }
      : {
          level: 'note',
          what: 'eBPF mode: there is no cgroup v2 hierarchy',
          fix: 'mount cgroup2, or use another mode',
        },
  ];
}

function nftProblem(): Finding {
  try {
    const connection = new NftConnection();
    try {
      connection.tables(NFPROTO_IPV4);
    } finally {
      connection.close();
    }
    return { level: 'ok', what: 'nftables mode: the kernel has nf_tables', fix: null };
  } catch (error) {
    return {
      level: 'problem',
      what: `nftables mode, which the others need too: ${messageOf(error)}`,
      fix: 'modprobe nf_tables',
    };
  }
}

/** The node's settings on which traffic to pods depends. */
export function checkSettings(read: ReadFile): Finding[] {
  const findings: Finding[] = [];
  const forward = read('/proc/sys/net/ipv4/ip_forward');
  findings.push(
    forward === '1'
      ? { level: 'ok', what: 'IPv4 packets are forwarded', fix: null }
      : {
          level: 'problem',
          what: 'IPv4 packets are not forwarded to pods',
          fix: 'sysctl -w net.ipv4.ip_forward=1',
        },
  );
  const bridge = read('/proc/sys/net/bridge/bridge-nf-call-iptables');
  if (bridge !== '1') {
    findings.push({
      level: 'note',
      what: 'packets between pods of one bridge do not pass the rules: a Service whose endpoint is on the client’s own node may not answer with bridge networks of other plugins',
      fix: 'modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1',
    });
  }
  if (read('/proc/sys/net/ipv4/conf/all/rp_filter') === '1') {
    findings.push({
      level: 'note',
      what: 'rp_filter is strict: replies that come back by another interface are dropped',
      fix: 'sysctl -w net.ipv4.conf.all.rp_filter=2',
    });
  }
  const max = Number(read('/proc/sys/net/netfilter/nf_conntrack_max') ?? Number.NaN);
  if (max < SMALL_CONNTRACK) {
    findings.push({
      level: 'note',
      what: `${max} connections can be tracked`,
      fix: 'the agent raises it by conntrack.maxPerCore and min, where it may write sysctls',
    });
  }
  return findings;
}

function checkPort([port, purpose]: readonly [port: number, purpose: string]): Promise<Finding> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on('error', () =>
      resolve({
        level: 'problem',
        what: `port ${port} (${purpose}) is in use`,
        fix: `stop what listens there (ss -ltnp sport = :${port}), or configure another address`,
      }),
    );
    server.listen({ host: '127.0.0.1', port }, () =>
      server.close(() => resolve({ level: 'ok', what: `port ${port} (${purpose}) is free`, fix: null })),
    );
  });
}
