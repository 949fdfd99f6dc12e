import { type FSWatcher, watch } from 'node:fs';
import { type Clock, systemClock } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';

/** The interval of calls while the kernel cannot watch, and of attempts to watch again. */
const POLL_MS = 500;

export interface PathWatch {
  close(): void;
}

/**
 * Watches a folder or file: `onChange` is called with the name of what changed, null if it is unknown. The kernel counts watches
 * (inotify) by user id, also those of processes in containers: a pod of the same id that uses them up keeps others from watching.
 * While that is so, `onChange(null)` is called twice a second. Throws the system's error if the path cannot be read.
 */
export function watchPath(
  path: string,
  onChange: (name: string | null) => void,
  clock: Clock = systemClock,
): PathWatch {
  let watcher: FSWatcher | null = null;
  let cancel = () => {};
  let closed = false;

  const poll = () => {
    watcher?.close();
    watcher = null;
    if (!closed) cancel = clock.after(POLL_MS, again);
  };
  const begin = () => {
    try {
      watcher = watch(path, { persistent: false }, (_event, name) => onChange(name));
      watcher.on('error', poll);
    } catch (error) {
      // The limits of instances (EMFILE) and of watches (ENOSPC).
      if (!hasCode(error, 'EMFILE', 'ENOSPC')) throw error;
      poll();
    }
  };
  const again = () => {
    onChange(null);
    try {
      if (!closed) begin();
    } catch {
      // The path is gone.
      poll();
    }
  };
  begin();
  return {
    close() {
      closed = true;
      cancel();
      watcher?.close();
    },
  };
}
