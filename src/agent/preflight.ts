import { createServer } from 'node:net';
import type { Mode } from '../dataplane/dataplane.ts';
import { controlGroupRoot } from '../kernel/control-group.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { messageOf } from '../lib/errors.ts';
import { installedCrunWarning } from '../runtime/crun-version.ts';
import { COMMAND_PORT } from './command-rights.ts';
import { findKubeProxyState, isAnyLeft } from './kube-proxy-state.ts';
import { modeObstacle } from './mode-support.ts';
import {
  bpfPlace,
  describeState,
  findOtherProxies,
  isLiveProxy,
  isTranslating,
  type OtherProxyState,
  remainderOf,
} from './other-proxies.ts';
import type { Finding } from './preflight-finding.ts';
import { checkMtu, readMtuFacts } from './preflight-mtu.ts';
import { findRunningKubeProxy } from './running-kube-proxy.ts';
import { askStatus } from './status-answer.ts';

/** Reads a file of /proc; returns null if it does not exist. */
export type ReadFile = (path: string) => string | null;

const NFPROTO_IPV4 = 2;
/** Below this value, a node with many pods may drop connections. */
const SMALL_CONNTRACK = 65_536;
const HEALTH_PORT = 10256;
const MTU_PLACES = { confDir: '/etc/cni/net.d', flannel: '/run/flannel/subnet.env' } as const;
const PORTS: readonly [port: number, purpose: string][] = [
  [HEALTH_PORT, 'health checks'],
  [10249, 'metrics'],
  [COMMAND_PORT, 'commands from other machines'],
];

/** Checks whether the agent can run on this node. `root`: of the node's file system. Changes nothing. */
export async function preflight(root: string): Promise<Finding[]> {
  const running = await findRunningKubeProxy();
  const left = await findKubeProxyState({ mode: null, families: [], excluded: [] });
  return [
    ...checkMechanisms(),
    ...(await checkCrun(root)),
    ...checkSettings((path) => readOptionalFile(path)?.trim() ?? null),
    ...checkMtu(readMtuFacts(root, MTU_PLACES)),
    running === null
      ? { level: 'ok', what: 'kube-proxy is not running', fix: null }
      : {
          level: 'problem',
          what: `kube-proxy is running (${running})`,
          fix: 'stop it; its rules stay until the agent has programmed its own',
        },
    isAnyLeft(left)
      ? {
          level: 'note',
          what: `found rules of kube-proxy: ${[...left.iptables.map((variant) => `iptables (${variant})`), ...(left.nftables.length > 0 ? ['nftables'] : []), ...(left.ipvs ? ['ipvs'] : [])].join(', ')}`,
          fix: 'not needed: the agent removes them after it has programmed its own',
        }
      : { level: 'ok', what: 'no rules of kube-proxy found', fix: null },
    ...(await findOtherProxies(bpfPlace(null), [])).flatMap(otherProxyFindings),
    ...(running === null ? await checkPorts() : []),
  ];
}

/** Reports another product that translates Services, or what it has left. */
export function otherProxyFindings(state: OtherProxyState): Finding[] {
  const { name, cleanUp } = state.proxy;
  if (isLiveProxy(state))
    return [
      {
        level: 'problem',
        what: `${name} is running (${state.running}) and translates Services`,
        fix: 'stop it, or disable its replacement of kube-proxy; then it can stay as the CNI plugin',
      },
    ];
  if (state.running !== null) return [];
  const rest = remainderOf(state);
  return [
    ...(isTranslating(state)
      ? [
          {
            level: 'note' as const,
            what: `found the state of a stopped ${name}: ${describeState(state)}`,
            fix: 'not needed: the agent removes it after it has programmed its own',
          },
        ]
      : []),
    ...(rest.length > 0
      ? [
          {
            level: 'note' as const,
            what: `found the pod network of a stopped ${name}: ${state.devices.length} devices`,
            fix: `if no pods still use it: ${cleanUp}`,
          },
        ]
      : []),
  ];
}

/** Checks the node's container runtime, if it is crun. In a container the programs are those of the image. */
async function checkCrun(root: string): Promise<Finding[]> {
  const warning = root === '/' ? await installedCrunWarning() : null;
  return warning === null
    ? []
    : [{ level: 'note', what: warning, fix: "update crun, or read your distribution's security advisories" }];
}

/** The modes that not every node can run, with the text of one that it can. */
const MODES: readonly (readonly [mode: Mode, name: string, works: string])[] = [
  ['iptables', 'iptables mode', 'iptables-restore is installed'],
  ['ipvs', 'IPVS mode', 'the kernel supports IPVS'],
  ['ebpf', 'eBPF mode', 'the kernel loads its programs, and a cgroup v2 hierarchy is mounted'],
];

/** Checks the kernel features and programs that the modes need, by using them. */
function checkMechanisms(): Finding[] {
  const modes = MODES.map(([mode, name, works]): Finding => {
    const obstacle = modeObstacle(mode);
    return obstacle === null
      ? { level: 'ok', what: `${name}: ${works}`, fix: null }
      : { level: 'note', what: `${name}: ${obstacle.reason}`, fix: obstacle.fix };
  });
  const failover: Finding = {
    level: 'note',
    what: 'fast failover: no cgroup v2 hierarchy is mounted',
    fix: 'mount cgroup2; otherwise failover takes a second',
  };
  return [nftProblem(), ...modes, ...(controlGroupRoot() === null ? [failover] : [])];
}

function nftProblem(): Finding {
  try {
    const connection = new NftConnection();
    try {
      connection.tables(NFPROTO_IPV4);
    } finally {
      connection.close();
    }
    return { level: 'ok', what: 'nftables mode: the kernel supports nf_tables', fix: null };
  } catch (error) {
    return {
      level: 'problem',
      what: `nf_tables, which all modes need, cannot be used: ${messageOf(error)}`,
      fix: 'modprobe nf_tables',
    };
  }
}

/** Checks the node's sysctls that affect traffic to pods. */
export function checkSettings(read: ReadFile): Finding[] {
  const findings: Finding[] = [];
  const forward = read('/proc/sys/net/ipv4/ip_forward');
  findings.push(
    forward === '1'
      ? { level: 'ok', what: 'IPv4 forwarding is enabled', fix: null }
      : {
          level: 'problem',
          what: 'IPv4 forwarding is disabled: packets do not reach pods',
          fix: 'sysctl -w net.ipv4.ip_forward=1',
        },
  );
  const bridge = read('/proc/sys/net/bridge/bridge-nf-call-iptables');
  if (bridge !== '1') {
    findings.push({
      level: 'note',
      what: 'bridged packets do not pass the rules: with another plugin’s bridge network, a Service may not answer if its endpoint is on the client’s node',
      fix: 'modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1',
    });
  }
  if (read('/proc/sys/net/ipv4/conf/all/rp_filter') === '1') {
    findings.push({
      level: 'note',
      what: 'rp_filter is strict: packets that arrive on another interface than the route back to their source are dropped',
      fix: 'sysctl -w net.ipv4.conf.all.rp_filter=2',
    });
  }
  const max = Number(read('/proc/sys/net/netfilter/nf_conntrack_max') ?? Number.NaN);
  if (max < SMALL_CONNTRACK) {
    findings.push({
      level: 'note',
      what: `only ${max} connections can be tracked`,
      fix: 'the agent raises it by conntrack.maxPerCore and min, if it may write sysctls',
    });
  }
  return findings;
}

async function checkPorts(): Promise<Finding[]> {
  if ((await askStatus(HEALTH_PORT, '/healthz'))?.isAgents)
    return [{ level: 'ok', what: 'the agent is running on this node, and uses its ports', fix: null }];
  return await Promise.all(PORTS.map(checkPort));
}

function checkPort([port, purpose]: readonly [port: number, purpose: string]): Promise<Finding> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on('error', () =>
      resolve({
        level: 'problem',
        what: `port ${port} (${purpose}) is in use`,
        fix: `stop the process that listens on it (ss -ltnp sport = :${port}), or configure another address`,
      }),
    );
    server.listen({ host: '127.0.0.1', port }, () =>
      server.close(() => resolve({ level: 'ok', what: `port ${port} (${purpose}) is free`, fix: null })),
    );
  });
}
