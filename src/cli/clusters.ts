import { listClusters, readCluster, readSupervision } from '../cluster/state.ts';
import { userContexts } from '../cluster/user-contexts.ts';
import { isRunning } from '../kernel/process-identity.ts';
import { defineCommand } from './command.ts';
import { flag } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { formatTable } from './table.ts';

/** A local cluster in the output of `clusters`. */
interface ClusterView {
  readonly name: string;
  /** `incomplete`: its `up` was killed. `of root`: known from the user's kubeconfig only. */
  readonly status: 'running' | 'stopped' | 'incomplete' | 'of root';
  readonly nodes: number | null;
  readonly mode: string | null;
  readonly ipFamily: string | null;
  /** The URL of its API server. */
  readonly server: string | null;
  /** ISO time. */
  readonly createdAt: string | null;
}

export const command = defineCommand({
  name: 'clusters',
  summary: 'list the local clusters',
  description: [
    'Lists the local clusters: those of this user, and for an ordinary user those of root that are in the own kubeconfig.',
  ],
  arguments: [],
  options: { quiet: flag('only the names, one a line', { short: 'q' }), ...FORMAT_OPTIONS },
  asUser: () => ({ cluster: null }),
  async run({ options }, output) {
    const own = listClusters();
    const others =
      process.getuid?.() === 0
        ? []
        : userContexts(process.env).filter(({ cluster }) => !own.includes(cluster));
    const views = [...own.map(viewOf), ...others.map(({ cluster }) => viewOfRoot(cluster))];
    if (options.quiet) output.out(views.map(({ name }) => `${name}\n`).join(''));
    else output.out(renderFacts(views, options) ?? textOf(views, output.columns));
    return 0;
  },
});

function viewOf(name: string): ClusterView {
  const state = readCluster(name);
  if (state === null || !state.isCreated) return { ...viewOfRoot(name), status: 'incomplete' };
  return {
    name,
    status: isRunning(readSupervision(name).supervisor) ? 'running' : 'stopped',
    nodes: state.nodes.length,
    mode: state.mode,
    ipFamily: state.ipFamily,
    server: `https://127.0.0.1:${state.apiPort}`,
    createdAt: state.createdAt,
  };
}

const viewOfRoot = (name: string): ClusterView => ({
  ...{ name, status: 'of root', nodes: null, mode: null, ipFamily: null, server: null, createdAt: null },
});

function textOf(views: readonly ClusterView[], columns: number | null): string {
  if (views.length === 0) return 'no local clusters; to start one: fairlead up\n';
  const rows = views.map(({ name, status, nodes, mode, ipFamily, server }) => [
    ...[name, status, String(nodes ?? '-'), mode ?? '-', ipFamily ?? '-', server ?? '-'],
  ]);
  return formatTable([['NAME', 'STATUS', 'NODES', 'MODE', 'FAMILY', 'SERVER'], ...rows], columns, [
    'FAMILY',
    'MODE',
  ]);
}
