import { restoreSnapshot } from '../cluster/snapshot.ts';
import { prepareStateFolder } from '../cluster/state-folder.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';

export const command = defineCommand({
  name: 'restore',
  summary: 'restore a local cluster from a file of "snapshot"',
  description: [
    'Restores a local cluster, under its name, from an archive that "snapshot" wrote. "up" then starts it, with the same objects, addresses, names, images and volumes.',
  ],
  arguments: [{ name: 'FILE', help: 'the archive' }],
  options: {},
  asUser: () => ({ cluster: null, creates: true, starts: true }),
  async run({ args: [file = ''] }, output) {
    const memory = prepareStateFolder();
    if (memory !== null) output.err(wrapLines(`fairlead: ${memory}\n`, output.columns));
    const name = await restoreSnapshot(file);
    output.out(`cluster ${name} is restored; to start it: fairlead up --name ${name}\n`);
    return 0;
  },
});
