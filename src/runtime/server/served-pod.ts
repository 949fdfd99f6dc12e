import type { Pod } from '../../kube/types.ts';
import type { RunningContainer, RuntimePaths } from '../oci-runtime.ts';

/** A pod of this node as seen by the node's server. */
export interface ServedPod {
  /** The object with the status that this node reports. */
  readonly pod: Pod;
  /** The pause process of the pod's namespaces; null if there is none. */
  readonly pausePid: number | null;
  /** The control group of its containers, below the hierarchy's root. */
  readonly cgroup: string;
  readonly containerNames: readonly string[];
  container(name: string): ServedContainer | undefined;
}

export interface ServedContainer {
  /** The runtime's name of the current run. */
  readonly id: string;
  readonly isRunning: boolean;
  /** Milliseconds since 1970; null while it does not run. */
  readonly startedAtMs: number | null;
  readonly paths: RuntimePaths;
  readonly current: RunningContainer & { readonly tty: boolean };
  /** The folder of its logs: a file for each run, named by its number. */
  readonly logFolder: string;
  /** Throws FairleadError "BadRequest" if there is no log. */
  logFile(previous: boolean): string;
  /** Resolves to the exit code once the current run has ended; null when it continues to run. */
  exitCode(): Promise<number | null>;
}

/** The pods of the node. */
export interface ServedPods {
  list(): readonly ServedPod[];
  find(namespace: string, name: string): ServedPod | undefined;
}
