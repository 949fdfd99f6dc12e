import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { execFolder } from '../../src/runtime/exec-files.ts';

const MAX_NODES = 5;
const nodeState = (stateRoot: string, cluster: string, node: number): string =>
  join(stateRoot, cluster, 'nodes', `node-${node}`, 'state');

/**
 * Returns the state that a cluster could leave on this machine, as lines of text: links, routes, rules,
 * namespaces, mounts, nf_tables, control groups, and processes that belong to the cluster.
 */
export function machineState(cluster: string, stateRoot: string): string[] {
  const lines = (command: string) =>
    execFileSync('sh', ['-c', command], { encoding: 'utf8' }).split('\n').filter(Boolean);
  // Other tests of this suite may start and end concurrently.
  const others = (line: string) => !line.includes(cluster) && /\bflt?-/.test(line);
  const all = [
    ...lines('ip -o link | sed "s/^[0-9]*: //"').map((line) => `link ${line}`),
    ...lines('ip route show table all; ip -6 route show table all').map(
      (line) => `route ${line.replace(/ expires [0-9]+sec/, '')}`,
    ),
    ...lines('ip rule; ip -6 rule').map((line) => `rule ${line}`),
    ...lines('ls /run/netns 2>/dev/null || true').map((line) => `netns ${line}`),
    // Those of other clusters come and go.
    ...Array.from({ length: MAX_NODES }, (_, i) => execFolder(nodeState(stateRoot, cluster, i + 1)))
      .filter((folder) => existsSync(folder))
      .map((folder) => `exec ${folder}`),
    ...lines('cut -d" " -f5 /proc/self/mountinfo').map((line) => `mount ${line}`),
    ...lines('nft list ruleset').map((line) => `nft ${line}`),
    // Other clusters may start and end: the control groups are those of the whole machine.
    ...lines(`find /sys/fs/cgroup -type d -name "fairlead-${cluster}*" 2>/dev/null || true`).map(
      (line) => `cgroup ${line}`,
    ),
    ...lines('sysctl -a --pattern "net.ipv[46].(conf.all|ip_forward)" 2>/dev/null || true').map(
      (line) => `sysctl ${line}`,
    ),
    ...processes(cluster, stateRoot).map((line) => `process ${line}`),
  ];
  return all.filter((line) => !others(line)).sort();
}

/** Returns the lines added (+) and removed (-) between two states. */
export function machineChanges(before: readonly string[], after: readonly string[]): string[] {
  return [
    ...after.filter((line) => !before.includes(line)).map((line) => `+ ${line}`),
    ...before.filter((line) => !after.includes(line)).map((line) => `- ${line}`),
  ];
}

/** Returns processes with the cluster's mark, in its control groups, or with access to its files. */
function processes(cluster: string, stateRoot: string): string[] {
  const found: string[] = [];
  for (const pid of readdirSync('/proc').filter((entry) => /^[0-9]+$/.test(entry))) {
    if (Number(pid) === process.pid) continue;
    const read = (file: string) => {
      try {
        return readFileSync(`/proc/${pid}/${file}`, 'utf8');
      } catch {
        // The process ended meanwhile.
        return '';
      }
    };
    const ours =
      read('environ').includes(`FAIRLEAD_PROCESS_OF=${cluster}\0`) ||
      read('cgroup').includes(`/fairlead-${cluster}`) ||
      read('mountinfo').includes(`${stateRoot}/`);
    // A zombie has no command line; its parent has to reap it.
    const command = read('cmdline').replaceAll('\0', ' ');
    if (ours && command !== '') found.push(`${pid} ${command}`);
  }
  return found;
}
