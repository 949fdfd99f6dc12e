import { statfsSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';

/** Returns a node's resources as quantities: capacity and allocatable of its Node object. `stateDir`: the folder of pods' files. */
export function nodeCapacity(stateDir: string, maxPods: number): Record<string, string> {
  const { blocks, bsize } = statfsSync(stateDir);
  return {
    cpu: String(availableParallelism()),
    memory: `${Math.floor(totalmem() / 1024)}Ki`,
    // Like upstream's kubelet: the whole file system.
    'ephemeral-storage': `${Math.floor((blocks * bsize) / 1024)}Ki`,
    pods: String(maxPods),
  };
}
