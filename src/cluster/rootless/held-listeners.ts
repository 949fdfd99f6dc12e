import { closeSync } from 'node:fs';
import { join } from 'node:path';
import { copyDescriptors } from '../../kernel/copied-descriptors.ts';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity } from '../../kernel/process-identity.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { hasCode, isDiskFull } from '../../lib/errors.ts';
import { clusterPaths, readCluster } from '../state.ts';
import { keepPassedListeners, type PassedListener, passedListeners } from './passed-listeners.ts';

/** The sockets of a supervisor, as listeners.json has them: other processes of the cluster copy them (pidfd_getfd(2)). */
interface ListenerRecord {
  readonly owner: ProcessIdentity | null;
  readonly listeners: readonly PassedListener[];
}

/**
 * The listening sockets on the user's loopback that the supervisor of a cluster keeps open, since no process of the cluster can
 * open others: they are in a network namespace that the cluster's processes cannot enter.
 */
export interface HeldListeners {
  all(): readonly PassedListener[];
  /** Returns the descriptors of a port; none if it has no sockets. */
  of(wanted: PassedListener['wanted']): readonly number[];
  /** Copies sockets of another process, for ports that have none. */
  add(pid: number, listeners: readonly PassedListener[]): void;
  /** Closes the sockets of ports that are no longer published, and records the others for the cluster's processes. */
  record(): void;
  /** On standby: copies what the supervisor has recorded. */
  follow(): void;
}

export function createHeldListeners(name: string): HeldListeners {
  keepPassedListeners();
  const held = new Map(passedListeners().map((one) => [one.wanted, one]));
  let recorded = '';
  const close = ({ wanted, descriptors }: PassedListener) => {
    held.delete(wanted);
    for (const fd of descriptors) closeSync(fd);
  };
  const add = (pid: number, listeners: readonly PassedListener[]) => {
    for (const one of listeners)
      if (!held.has(one.wanted))
        held.set(one.wanted, { ...one, descriptors: copyDescriptors(pid, one.descriptors) });
  };
  return {
    all: () => [...held.values()],
    of: (wanted) => held.get(wanted)?.descriptors ?? [],
    add,
    record() {
      const published = readCluster(name)?.publishedPorts;
      if (published === undefined || (held.size === 0 && recorded === '')) return;
      for (const one of [...held.values()])
        if (one.wanted !== 'api' && !published.some(({ localPort }) => localPort === one.wanted)) close(one);
      const record: ListenerRecord = { owner: identify(process.pid), listeners: [...held.values()] };
      const text = JSON.stringify(record);
      if (text === recorded) return;
      try {
        replaceFile(recordFile(name), text);
        recorded = text;
      } catch (error) {
        // Until there is space, only processes that this one starts have the sockets.
        if (!isDiskFull(error)) throw error;
      }
    },
    follow() {
      const { owner, listeners } = readRecord(name);
      if (!isRunning(owner) || owner.pid === process.pid) return;
      try {
        add(owner.pid, listeners);
      } catch (error) {
        // The supervisor has ended, or has closed a socket since: the next look shows which.
        if (!hasCode(error, 'ESRCH', 'EBADF')) throw error;
        return;
      }
      for (const one of [...held.values()])
        if (!listeners.some(({ wanted }) => wanted === one.wanted)) close(one);
    },
  };
}

/** Returns copies of the supervisor's sockets for a port, which the caller closes; null: it has none. */
export function copyHeldListener(name: string, port: number): readonly number[] | null {
  const { owner, listeners } = readRecord(name);
  const found = listeners.find(({ wanted }) => wanted === port);
  return found && isRunning(owner) ? copyDescriptors(owner.pid, found.descriptors) : null;
}

const recordFile = (name: string) => join(clusterPaths(name).root, 'listeners.json');

function readRecord(name: string): ListenerRecord {
  const text = readOptionalFile(recordFile(name));
  return text === null ? { owner: null, listeners: [] } : (JSON.parse(text) as ListenerRecord);
}
