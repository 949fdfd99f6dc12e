import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { askStatus } from './status-answer.ts';

/** Evidence of a running kube-proxy: "process 123", "it answers on port 10256". */
export type Evidence = string;

/** kube-proxy's ports for health and metrics. */
const PORTS: readonly [port: number, path: string][] = [
  [10256, '/healthz'],
  [10249, '/proxyMode'],
];

/**
 * Detects a kube-proxy that runs in this network namespace: a process, or a server on its ports that is not
 * Fairlead's. A container sees the node's processes only with hostPID; the ports answer in any container.
 */
export async function findRunningKubeProxy(): Promise<Evidence | null> {
  const pid = findProcess(isKubeProxyProcess);
  if (pid !== null) return `process ${pid}`;
  const answers = await Promise.all(PORTS.map(([port, path]) => answersAsKubeProxy(port, path)));
  const found = PORTS.find((_, i) => answers[i]);
  return found ? `it answers on port ${found[0]}` : null;
}

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

async function answersAsKubeProxy(port: number, path: string): Promise<boolean> {
  const answer = await askStatus(port, path);
  return answer !== null && !answer.isAgents && isKubeProxys(path, answer.body);
}

/** Other programs may use these ports. */
function isKubeProxys(path: string, body: string): boolean {
  return path === '/proxyMode'
    ? ['iptables', 'ipvs', 'nftables'].includes(body.trim())
    : body.includes('"lastUpdated"');
}
