import { controlGroupRoot } from '../../kernel/control-group.ts';
import { FairleadError } from '../../lib/errors.ts';

/** The root of the cgroup v2 hierarchy. Throws FairleadError where there is none. */
export function defaultControlGroup(): string {
  const root = controlGroupRoot();
  if (root !== null) return root;
  throw new FairleadError('there is no cgroup v2 hierarchy below /sys/fs/cgroup', {
    op: 'start eBPF mode',
    code: 'missing-kernel-feature',
    hint: 'mount it (mount -t cgroup2 none /sys/fs/cgroup/unified), or use the nftables mode',
  });
}
