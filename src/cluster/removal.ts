import { readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { removeControlSocket } from '../agent/control-socket-path.ts';
import { pinPathOf, removeAllPins } from '../dataplane/ebpf/pins.ts';
import { libc, systemError } from '../kernel/libc.ts';
import { MNT_DETACH } from '../kernel/mount-flags.ts';
import { readOptionalFolder } from '../kernel/optional-file.ts';
import { blockFor } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { listTopology, removeTopology, unplugMachine } from '../network/topology.ts';
import { removeExecFolder } from '../runtime/exec-files.ts';
import { authorityName } from './authority-name.ts';
import { removeEgress } from './egress.ts';
import { cgroupParent, endProcesses, findProcesses } from './processes.ts';
import { socketsFolder } from './rootless/holder.ts';
import { isRootless } from './rootless/rootless.ts';
import { clusterPaths, readCluster, removeClusterFolder } from './state.ts';
import { releaseStateFolder } from './state-folder.ts';
import { removeContext } from './user-kubeconfig.ts';

const PATIENCE_MS = 1500;

/**
 * Removes a local cluster from this machine: processes, mounts, control groups, namespaces with their links and rules,
 * files. Works from the actual state of the machine, not from records, so that it also cleans up after a crash during
 * `up`. Idempotent.
 */
export async function removeCluster(name: string): Promise<void> {
  await stopCluster(name);
  removeFromUserKubeconfig(name);
  removeClusterFolder(name);
  releaseStateFolder();
}

/**
 * Like `removeCluster`, but keeps the files: `up` restarts the cluster with the same objects, addresses, names, images
 * and volumes.
 */
export async function stopCluster(name: string): Promise<void> {
  const namespaces = listTopology(name);
  // Each command restarts the processes of the next: supervisors the control plane and agents, agents the pods.
  for (const command of [
    ['supervise'],
    ['agent', 'pod-runtime', 'control-plane', 'published-ports', 'egress', 'link-delay'],
  ]) {
    const found = () => findProcesses(name, []).filter(({ pid }) => runsCommand(pid, command));
    // Repeated for processes that were started in the meantime.
    for (let left = found(); left.length > 0; left = found()) await endProcesses(left, PATIENCE_MS);
  }
  // The remaining processes are pods: no agent remains to record a graceful end. Twice, for forks in between.
  for (let round = 0; round < 2; round++) await endProcesses(findProcesses(name, namespaces), 0);
  const { root, nodeState } = clusterPaths(name);
  for (const node of readOptionalFolder(join(root, 'nodes'))) {
    removeExecFolder(nodeState(node));
    removeControlSocket(nodeState(node), isRootless() ? socketsFolder() : null);
  }
  unmountBelow(root);
  // Without root, a cluster has neither: those of its name belong to a cluster of root.
  if (!isRootless()) {
    removeAllPins(pinPathOf(cgroupParent(name)));
    for (const root of ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'])
      removeGroups(join(root, cgroupParent(name)));
  }
  removeEgress(name);
  unplugMachine(name);
  removeTopology(name);
}

/**
 * Removes the cluster from the kubeconfig to which `up` added it. A file that is now malformed does not prevent
 * removal.
 */
function removeFromUserKubeconfig(name: string): void {
  try {
    const state = readCluster(name);
    if (state?.userKubeconfig) removeContext(state.userKubeconfig, authorityName(state));
  } catch (error) {
    process.emitWarning(`failed to remove cluster ${name} from a kubeconfig: ${messageOf(error)}`);
  }
}

function runsCommand(pid: number, commands: readonly string[]): boolean {
  try {
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return args.some((arg) => commands.includes(arg));
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return false;
    throw error;
  }
}

/** Unmounts everything below a folder, the latest mount first. */
function unmountBelow(folder: string): void {
  const points = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) =>
      (line.split(' ')[4] ?? '').replace(/\\([0-7]{3})/g, (_, octal: string) =>
        String.fromCharCode(Number.parseInt(octal, 8)),
      ),
    )
    .filter((point) => point.startsWith(`${folder}/`));
  for (const point of points.reverse()) {
    if (libc().umount2(point, MNT_DETACH) !== 0) throw systemError('unmount', point);
  }
}

/** Removes a control group and its descendants, which are empty. */
function removeGroups(path: string): void {
  let entries: string[];
  try {
    entries = readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return;
    throw error;
  }
  for (const entry of entries) removeGroups(join(path, entry));
  for (let attempt = 0; ; attempt++) {
    try {
      rmdirSync(path);
      return;
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return;
      // A killed process leaves its group a moment after it has disappeared from /proc.
      if (!hasCode(error, 'EBUSY') || attempt === 50) throw error;
      blockFor(10);
    }
  }
}
