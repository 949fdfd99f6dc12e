import { statfsSync } from 'node:fs';
import { availableParallelism, totalmem } from 'node:os';

const MAX_PODS = 250;

/** A node's resources, as quantities: its Node object's capacity and allocatable. `stateDir`: where pods' files are. */
export function nodeCapacity(stateDir: string): Record<string, string> {
  const { blocks, bsize } = statfsSync(stateDir);
  return {
    cpu: String(availableParallelism()),
    memory: `${Math.floor(totalmem() / 1024)}Ki`,
    // As upstream's kubelet counts it: the whole file system.
    'ephemeral-storage': `${Math.floor((blocks * bsize) / 1024)}Ki`,
    pods: String(MAX_PODS),
  };
}
