import { statfsSync } from 'node:fs';
import { FairleadError, hasCode } from '../../lib/errors.ts';

// linux/magic.h
const CGROUP2_SUPER_MAGIC = 0x63677270;

/** The root of the cgroup v2 hierarchy: alone at /sys/fs/cgroup, or beside v1 hierarchies at "unified". */
export function defaultControlGroup(): string {
  for (const root of ['/sys/fs/cgroup', '/sys/fs/cgroup/unified']) {
    try {
      if (statfsSync(root).type === CGROUP2_SUPER_MAGIC) return root;
    } catch (error) {
      if (!hasCode(error, 'ENOENT')) throw error;
    }
  }
  throw new FairleadError('there is no cgroup v2 hierarchy below /sys/fs/cgroup', {
    op: 'start eBPF mode',
    code: 'missing-kernel-feature',
    hint: 'mount it (mount -t cgroup2 none /sys/fs/cgroup/unified), or use the nftables mode',
  });
}
