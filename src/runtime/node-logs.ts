import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { basename, join, normalize, relative } from 'node:path';
import { spreadFolders } from '../kernel/spread-folders.ts';
import type { Pod } from '../kube/types.ts';

/** The folder of logs on a node. Nodes on one machine have separate ones, below their state folders. */
const VAR_LOG = '/var/log';

/**
 * Creates the node's own /var/log, with the containers' logs in the same places as upstream's kubelet:
 *
 *   pods/NAMESPACE_NAME_UID/CONTAINER/RUN.log      the files
 *   containers/NAME_NAMESPACE_CONTAINER-ID.log     links to them
 */
export function makeNodeLogs(stateDir: string): void {
  for (const folder of ['pods', 'containers'])
    mkdirSync(join(stateDir, 'log', folder), { recursive: true, mode: 0o755 });
  spreadFolders(join(stateDir, 'log', 'pods'));
}

/** Returns the folder of the logs of a pod's container; a file for each run. */
export function containerLogFolder(stateDir: string, pod: Pod, container: string): string {
  const { namespace, name, uid } = pod.metadata ?? {};
  return join(stateDir, 'log', 'pods', `${namespace}_${name}_${uid}`, container);
}

/** Maps a path of the node to the path on this machine: /var/log is separate for each node. */
export function nodePath(stateDir: string, path: string): string {
  const clean = normalize(path).replace(/(?<=.)\/$/, '');
  if (clean !== VAR_LOG && !clean.startsWith(`${VAR_LOG}/`)) return path;
  return join(stateDir, 'log', relative(VAR_LOG, clean));
}

/** Links a run's log below containers/, and removes the links of the container's earlier runs. */
export function linkLog(stateDir: string, pod: Pod, container: string, id: string, log: string): void {
  // A container started by an earlier version of the agent logs elsewhere.
  if (!log.startsWith(join(stateDir, 'log'))) return;
  const { namespace, name, uid } = pod.metadata ?? {};
  const folder = join(stateDir, 'log', 'containers');
  const prefix = `${name}_${namespace}_${container}-`;
  for (const entry of readdirSync(folder)) {
    if (entry.startsWith(prefix) && entry.length === prefix.length + 68) rmSync(join(folder, entry));
  }
  // Log collectors parse the name, and expect 64 hexadecimal digits at its end.
  const digits = createHash('sha256').update(id).digest('hex');
  const target = join(VAR_LOG, 'pods', `${namespace}_${name}_${uid}`, container, basename(log));
  symlinkSync(target, join(folder, `${prefix}${digits}.log`));
}

/** Removes the logs of a pod, and the links to them. */
export function removePodLogs(stateDir: string, uid: string): void {
  const logs = join(stateDir, 'log');
  if (!existsSync(logs)) return;
  for (const entry of readdirSync(join(logs, 'containers'))) {
    const link = join(logs, 'containers', entry);
    if (readlinkSync(link).split('/').at(-3)?.endsWith(`_${uid}`)) rmSync(link);
  }
  for (const entry of readdirSync(join(logs, 'pods'))) {
    if (entry.endsWith(`_${uid}`)) rmSync(join(logs, 'pods', entry), { recursive: true, force: true });
  }
}
