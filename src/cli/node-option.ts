import type { ClusterState } from '../cluster/state.ts';
import { FairleadError } from '../lib/errors.ts';
import { type Parsed, textOption } from './command.ts';

/** The names of the nodes that a command is about: the one of `--node`, or all. Throws FairleadError naming those there are. */
export function nodeOption(command: string, parsed: Parsed, state: ClusterState): string[] {
  const only = textOption(parsed, 'node', '');
  const nodes = state.nodes.map(({ name }) => name);
  if (only === '') return nodes;
  if (nodes.includes(only)) return [only];
  throw new FairleadError(`there is no node ${JSON.stringify(only)}`, {
    op: `fairlead ${command}`,
    code: 'no-node',
    hint: `use one of ${nodes.join(', ')}`,
  });
}
