import { lockCluster } from '../cluster/name-lock.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { takeSnapshot } from '../cluster/snapshot.ts';
import { requireCluster } from '../cluster/state.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';

export const command = defineCommand({
  name: 'snapshot',
  summary: 'write a local cluster to a file, for "restore"',
  description: [
    'Writes a local cluster, running or stopped, to an archive: objects, credentials, images, volumes and the files of pods, without logs. The archive contains the keys of the cluster and is readable by its owner only.',
  ],
  arguments: [{ name: 'FILE', help: 'the archive, such as demo.tar.gz; an existing file is replaced' }],
  options: { name: NAME_OPTION },
  asUser: ({ options }) => ({ cluster: options.name, starts: true }),
  async run({ options, args: [file = ''] }, output) {
    requireOwner('snapshot', options.name);
    const { name } = requireCluster(options.name);
    const lock = await lockCluster(name, 'fairlead snapshot');
    try {
      await takeSnapshot(requireCluster(name), file);
    } finally {
      lock.release();
    }
    output.out(`cluster ${name} is in ${file}; to restore it: fairlead restore ${file}\n`);
    return 0;
  },
});
