/**
 * Runs a command of fairlead without root rights: node run-as-user.ts UID COMMAND [ARGUMENT…]
 */
import { processOutput } from '../../src/cli/command.ts';
import { COMMANDS } from '../../src/cli/commands.ts';
import { main } from '../../src/cli/main.ts';

const [uid = '', ...words] = process.argv.slice(2);
// Loaded first: the user may not be permitted to read the folder of the source.
await Promise.all(COMMANDS.map(({ load }) => load()));
process.setgroups?.([]);
process.setgid?.(Number(uid));
process.setuid?.(Number(uid));
process.exitCode = await main(words, processOutput());
