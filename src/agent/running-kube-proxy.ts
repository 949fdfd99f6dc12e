import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { NETLINK_SOCK_DIAG, NetlinkSocket } from '../kernel/netlink/socket.ts';
import { listSockets, TCP_STATE } from '../kernel/sock-diag.ts';
import { hostPort } from '../lib/address.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { findKubeProxyState, isAnyLeft } from './kube-proxy-state.ts';
import { askStatus } from './status-answer.ts';

/** Evidence of a running kube-proxy: "process 123", "it answers on port 10256". */
export type Evidence = string;

/** kube-proxy's ports for health and metrics. */
const PORTS: readonly [port: number, path: string][] = [
  [10256, '/healthz'],
  [10249, '/proxyMode'],
];

/** Listening addresses that are asked at most: a node has a few dozen. */
const MAX_LISTENERS = 128;

/**
 * Detects a kube-proxy that runs in this network namespace: a process, or a server on its ports that is not Fairlead's. A
 * container sees the node's processes only with hostPID; the ports answer in any container. If there are rules of kube-proxy,
 * it may listen on other ports: then all that listen here are asked. `mode`: of this agent, whose iptables mode has chains of
 * the same names; null (default): none.
 */
export async function findRunningKubeProxy(mode: Mode | null = null): Promise<Evidence | null> {
  const pid = findProcess(isKubeProxyProcess);
  if (pid !== null) return `process ${pid}`;
  const answers = await Promise.all(PORTS.map(([port, path]) => answersAsKubeProxy(port, path)));
  const found = PORTS.find((_, i) => answers[i]);
  if (found) return `it answers on port ${found[0]}`;
  const state = await findKubeProxyState({ mode, families: ['ipv4', 'ipv6'], excluded: [] });
  return isAnyLeft(state) ? await findAnswering() : null;
}

/** Finds a kube-proxy among all that listens in this namespace. */
async function findAnswering(): Promise<Evidence | null> {
  const answers = listeners().map(async ({ host, port }) => {
    for (const [, path] of PORTS)
      if (await answersAsKubeProxy(port, path, host)) return `it answers on ${hostPort({ ip: host, port })}`;
    return null;
  });
  return (await Promise.all(answers)).find((evidence) => evidence !== null) ?? null;
}

/** Returns the addresses that listen for TCP, without those of the usual ports, which have been asked. */
function listeners(): { host: string; port: number }[] {
  using socket = new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG });
  const found = new Map<string, { host: string; port: number }>();
  for (const family of ['ipv4', 'ipv6'] as const)
    for (const { local, localPort: port } of listSockets(socket, family, 'tcp', TCP_STATE.listen)) {
      const host = ANY[local] ?? local;
      if (PORTS.some(([usual]) => usual === port)) continue;
      found.set(`${host} ${port}`, { host, port });
    }
  return [...found.values()].slice(0, MAX_LISTENERS);
}

/** Loopback reaches what listens on all addresses; a socket of both families is listed as IPv6. */
const ANY: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '127.0.0.1' };

/** Throws FairleadError "other-proxy" with a hint if another proxy is running. */
export function refuseToRunAlongside(evidence: Evidence, name = 'kube-proxy'): never {
  throw new FairleadError(
    `${name} is running on this node (${evidence}): both would program the same Services`,
    {
      op: 'start proxy',
      code: 'other-proxy',
      hint: `stop ${name} first (its rules stay, so traffic continues), or start with --beside`,
    },
  );
}

/**
 * Returns a process of this network namespace whose command line matches; null: there is none, or this container does not
 * see the node's processes. The first word is the program's name without its folder.
 */
export function findProcess(matches: (words: readonly string[]) => boolean): number | null {
  const own = readlinkSync('/proc/self/ns/net');
  for (const name of readdirSync('/proc')) {
    if (!/^[0-9]+$/.test(name) || Number(name) === process.pid) continue;
    try {
      // First, since it takes a fifth of the time of the command line.
      if (readlinkSync(`/proc/${name}/ns/net`) !== own) continue;
      const [program = '', ...words] = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      if (matches([basename(program), ...words])) return Number(name);
    } catch (error) {
      // The process has ended, or belongs to another user.
      if (!hasCode(error, 'ENOENT', 'ESRCH', 'EACCES', 'EPERM')) throw error;
    }
  }
  return null;
}

const isKubeProxyProcess = ([program, command]: readonly string[]): boolean =>
  program === 'kube-proxy' || (program === 'hyperkube' && command === 'kube-proxy');

async function answersAsKubeProxy(port: number, path: string, host?: string): Promise<boolean> {
  const answer = await askStatus(port, path, host);
  return answer !== null && !answer.isAgents && isKubeProxys(path, answer.body);
}

/** Other programs may use these ports. */
function isKubeProxys(path: string, body: string): boolean {
  return path === '/proxyMode'
    ? ['iptables', 'ipvs', 'nftables'].includes(body.trim())
    : body.includes('"lastUpdated"');
}
