import type { ClusterState } from '../cluster/state.ts';
import { FairleadError } from '../lib/errors.ts';
import { suggestion } from './options.ts';

/** Returns the names of a command's nodes: the value of `--node`, or all nodes. Throws FairleadError. */
export function selectNodes(command: string, only: string | null, state: ClusterState): string[] {
  const nodes = state.nodes.map(({ name }) => name);
  if (only === null) return nodes;
  if (nodes.includes(only)) return [only];
  throw new FairleadError(`no such node: ${only}${suggestion(only, nodes)}`, {
    op: `fairlead ${command}`,
    code: 'no-node',
    hint: `use one of ${nodes.join(', ')}`,
  });
}
