import { homedir } from 'node:os';
import {
  discardNamespaces,
  endUnusedNamespaces,
  findHolder,
  lockNamespaces,
  recordHolder,
  shareNamespaces,
} from '../cluster/rootless/holder.ts';
import { insideWords, makeNamespaces } from '../cluster/rootless/make-namespaces.ts';
import {
  keepPassedListeners,
  type PassedListener,
  passedEnvironment,
} from '../cluster/rootless/passed-listeners.ts';
import { ROOTLESS } from '../cluster/rootless/rootless.ts';
import { closeWayOut, openWayOut } from '../cluster/rootless/way-out.ts';
import { isUnfinished, listClusters, stateRoot } from '../cluster/state.ts';
import { setInherited } from '../kernel/close-on-exec.ts';
import { OWN_NETNS } from '../kernel/netns.ts';
import { findProgram } from '../kernel/program-path.ts';
import { getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { FairleadError } from '../lib/errors.ts';

/** How a command of an ordinary user uses the user's namespaces. */
export interface UserRun {
  /** The cluster that it works on; null: any of the user's. */
  readonly cluster: string | null;
  /** It is for a cluster that need not exist. */
  readonly creates?: boolean;
  /** The network in which the command runs. Default: that of the user's clusters. */
  readonly network?: 'machine' | 'clusters';
  /** It makes the namespaces, and ends them if they are unused afterwards. Other commands enter those that exist. */
  readonly starts?: boolean;
  /** It connects the namespaces with the user's network, for `up --egress`. */
  readonly egress?: boolean;
  /** Opens the sockets on the user's loopback that the command needs. */
  readonly listen?: () => Promise<readonly PassedListener[]> | readonly PassedListener[];
}

/** The variable with which a command passes on, to itself inside the namespaces, what the programs between do not keep. */
const ARRIVAL = 'FAIRLEAD_ARRIVAL';

interface Arrival {
  readonly folder: string;
  /** The descriptor of the lock on the namespaces. */
  readonly lock: number | null;
  readonly network: 'machine' | 'clusters';
}

/**
 * Continues this command inside the user's namespaces, as their root: replaces this program by itself, and does not return.
 * Returns if the command does not need them: for clusters of root, and if the user's cluster is stopped.
 */
export async function enterNamespaces(run: UserRun): Promise<void> {
  const { cluster, creates = false, starts = false, network = 'clusters' } = run;
  const clusters = listClusters();
  const isOwn =
    creates || (cluster === null ? clusters.length > 0 : clusters.includes(cluster) || isUnfinished(cluster));
  if (!isOwn) return;
  const listen = async () => (await run.listen?.()) ?? [];
  // Before the namespaces are made: a port that is in use leaves nothing behind.
  const first = starts ? await listen() : [];
  const { holder, lock } = starts ? await startNamespaces() : existingNamespaces();
  if (holder === null) return;
  if (run.egress === true) {
    try {
      await openWayOut(holder);
    } catch (error) {
      discardNamespaces();
      throw error;
    }
  }
  const listeners = starts ? first : await listen();
  const arrival: Arrival = { folder: process.cwd(), lock, network };
  const inherited = [
    ...listeners.flatMap(({ descriptors }) => descriptors),
    ...(lock === null ? [] : [lock]),
  ];
  for (const fd of inherited) setInherited(fd, true);
  const environment = {
    ...process.env,
    ...passedEnvironment(listeners),
    FAIRLEAD_STATE: stateRoot(),
    [ROOTLESS]: '1',
    // Inside, the user is root, whose home is another one.
    HOME: homedir(),
    [ARRIVAL]: JSON.stringify(arrival),
  };
  const words = [
    ...['nsenter', ...insideWords(holder, network === 'clusters')],
    ...['--', process.execPath, ...process.execArgv, ...process.argv.slice(1)],
  ];
  // In every version of Node.js that this program supports (22.15).
  process.execve?.(nsenter(), words, environment as Record<string, string>);
}

async function startNamespaces(): Promise<{ readonly holder: number; readonly lock: number }> {
  const lock = await lockNamespaces();
  try {
    const holder = findHolder() ?? recordHolder(await makeNamespaces());
    lock.share();
    return { holder: holder.pid, lock: lock.descriptor };
  } catch (error) {
    lock.release();
    throw error;
  }
}

function existingNamespaces(): { readonly holder: number | null; readonly lock: number | null } {
  const lock = shareNamespaces();
  return { holder: findHolder()?.pid ?? null, lock };
}

/** Finds the program by which this one enters namespaces: a process with several threads cannot enter a user namespace itself. */
function nsenter(): string {
  const found = findProgram('nsenter', ['/usr/bin', '/bin']);
  if (found !== null) return found;
  throw new FairleadError('nsenter is not installed', {
    op: 'enter namespaces',
    code: 'ENOENT',
    hint: 'install it first (Debian: sudo apt-get install util-linux)',
  });
}

/**
 * Restores what the way into the namespaces has lost, if this process has just entered them. Returns the function to call at the
 * end of the command.
 */
export function arrive(): () => void {
  const text = process.env[ARRIVAL];
  if (text === undefined) return () => {};
  delete process.env[ARRIVAL];
  const { folder, lock, network } = JSON.parse(text) as Arrival;
  process.chdir(folder);
  keepPassedListeners();
  if (lock !== null) setInherited(lock, false);
  if (network === 'clusters') {
    // The loopback device of new namespaces is down.
    const socket = openRouteSocket(OWN_NETNS);
    setLink(socket, getLink(socket, 'lo').index, { up: true });
    socket.close();
  }
  return () => {
    if (lock !== null && endUnusedNamespaces(lock)) closeWayOut();
  };
}
