import { removeAll } from '../agent/cleanup.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { silentLogger } from '../lib/log.ts';
import { readConfigurationFile } from './agent.ts';
import { type Command, parseArguments, textOption } from './command.ts';

export const command: Command = {
  help: `Usage: fairlead cleanup [--config FILE] [--json]

Removes from this node what Fairlead's agent wrote there, whichever mode it ran in: rules, maps, sets, virtual servers,
BPF programs and their pins, devices, routes, the CNI plugin. Nothing that is not its own is touched. Stop the agent
first: one that runs would write it all anew. Services and pods of this node have no network then.

  --config FILE   the configuration that the agent ran with: parts that it did not do are left alone
  --json          print one JSON object
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'cleanup',
      argv,
      { config: { type: 'string' }, json: { type: 'boolean' } },
      { least: 0, most: 0, names: '' },
    );
    requireRoot('cleanup');
    const file = textOption(parsed, 'config', '');
    const configuration = file === '' ? null : readConfigurationFile(file);
    const steps = await removeAll(configuration, silentLogger);
    if (parsed.values['json']) output.out(`${JSON.stringify({ steps })}\n`);
    else {
      for (const { what, error } of steps) {
        if (error === null) output.out(`✓ ${what}\n`);
        else output.err(`✗ ${what}: ${error}\n`);
      }
    }
    return steps.every(({ error }) => error === null) ? 0 : 1;
  },
};
