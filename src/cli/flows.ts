import { openCluster } from '../cluster/cluster-access.ts';
import { type FlowSource, type FlowStreams, readFlows } from '../cluster/flow-reader.ts';
import { problemText } from '../cluster/remote-cluster.ts';
import { type DnsLine, FLOW_LINE_KINDS, type FlowLine, type FlowsEntry } from '../flows/flow-line.ts';
import { flowText } from '../flows/flow-text.ts';
import { type Client, createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { silentLogger } from '../lib/log.ts';
import { defineCommand, type Output } from './command.ts';
import { type FlowNames, followNames } from './flow-names.ts';
import { createFlowOrder } from './flow-order.ts';
import { type KnownNames, missingNames, readSince, selectFlows, VERDICT_WORDS } from './flow-selection.ts';
import { NAME_OPTION } from './name-option.ts';
import { selectNodes } from './node-option.ts';
import { flag, text, wholeNumber } from './options.ts';
import { renderFact, STREAM_OPTIONS } from './output-format.ts';
import {
  openRemote,
  ownCluster,
  REMOTE_OPTIONS,
  type RemoteValues,
  selectRemoteNodes,
} from './remote-option.ts';

export const command = defineCommand({
  name: 'flows',
  summary: 'show connections and DNS lookups as they happen, and why they fail',
  description: [
    'Shows connections as they happen, until Ctrl-C: through Services, between pods and to the outside. Each line has the client, the Service, the chosen endpoint, and how long it took to answer, or why it did not: the rule of the Service or the NetworkPolicy where they are the reason. A DNS lookup is one line with the names of its search path that were tried.',
    'On a busy node only a sample of the failing and direct connections and DNS lookups is shown; a line says so when that begins. Connections that processes of a node open to pods (such as probes) are not shown, nor datagrams without a Service.',
  ],
  arguments: [],
  options: {
    service: text('S', 'only flows of this Service: [NAMESPACE/]NAME', { main: true }),
    pod: text('P', 'only flows from or to this pod: [NAMESPACE/]NAME', { main: true }),
    verdict: text('V', `only these verdicts, separated by commas: ${VERDICT_WORDS.join(', ')}`, {
      main: true,
    }),
    kind: text('K', `only these kinds of events, separated by commas: ${FLOW_LINE_KINDS.join(', ')}`),
    node: text('NODE', 'only flows that this node sees'),
    since: text(
      'T',
      'show what earlier "flows" commands have recorded since 30s, 5m, 2h ago, or since a time, and exit',
    ),
    follow: flag('with --since: then show new flows, until Ctrl-C', { short: 'f' }),
    count: wholeNumber('N', [0, 0, 1_000_000_000], 'stop after N events; 0: no limit'),
    ...STREAM_OPTIONS,
    name: NAME_OPTION,
    ...REMOTE_OPTIONS,
  },
  examples: [
    'flows --verdict failed',
    'flows --service hello -o json',
    'flows --pod client --since 5m --follow',
  ],
  asUser: (parsed) => ownCluster('flows', parsed),
  async run(parsed, output) {
    const { options } = parsed;
    const isWanted = selectFlows(options);
    const since = options.since === null ? null : readSince(options.since, Date.now());
    const follow = since === null || options.follow;
    const count = options.count === 0 ? Number.POSITIVE_INFINITY : options.count;
    const cluster = await openSource(parsed);
    const { nodes } = cluster;
    const end = new AbortController();
    const stop = () => end.abort();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    output.unread.addEventListener('abort', stop);
    let releases: NodeJS.Timeout | undefined;
    try {
      const names = await followNames(cluster.client, cluster.outside, silentLogger, end.signal);
      for (const warning of missingNames(options, await listNames(cluster.client, options)))
        output.err(`fairlead: ${warning}\n`);
      let shown = 0;
      const order = createFlowOrder<{ node: string; entry: FlowsEntry }>({
        timeOf: ({ entry }) => timeOf(entry),
        show: ({ node, entry }) => show(node, entry),
        now: () => performance.now(),
        holdMs: HOLD_MS,
      });
      const show = (node: string, entry: FlowsEntry) => {
        if (entry.type === 'notice') {
          output.err(`fairlead: ${node}: ${entry.text}\n`);
          return;
        }
        if (!isWanted(entry, node, names) || shown >= count) return;
        output.out(
          renderFact(withNames(entry, node, names), options) ??
            `${flowText({ node, entry, nameOf: names.of }, output.columns)}\n`,
        );
        if (++shown >= count) stop();
      };
      const readers = nodes.map((node) => {
        const onEntry = (entry: FlowsEntry) => order.add({ node, entry });
        return readFlows(cluster.source, node, onEntry, end.signal, { since, follow });
      });
      if (follow) {
        releases = setInterval(order.release, RELEASE_MS);
        Promise.allSettled(readers.map(({ started }) => started)).then((all) => {
          const isReady = all.some(({ status }) => status === 'fulfilled') && !end.signal.aborted;
          if (isReady) output.err('ready: new flows are shown from now on, until Ctrl-C\n');
        });
      }
      await Promise.all(readers.map(({ ended }, i) => cluster.tolerate(ended, nodes[i] ?? '', output)));
      order.flush();
    } catch (error) {
      if (!end.signal.aborted) throw error;
    } finally {
      clearInterval(releases);
      stop();
      process.off('SIGINT', stop).off('SIGTERM', stop);
      cluster.close();
    }
    return 0;
  },
});

/** Lists the objects of the kinds that the options name. */
async function listNames(
  client: Client,
  { service, pod }: { readonly service: string | null; readonly pod: string | null },
): Promise<KnownNames> {
  const names = (items: readonly { readonly metadata?: { namespace?: string; name?: string } }[]) =>
    items.map(({ metadata }) => `${metadata?.namespace}/${metadata?.name}`);
  return {
    services: service ? names((await client.list(RESOURCES.services)).items) : [],
    pods: pod ? names((await client.list(RESOURCES.pods)).items) : [],
  };
}

/** How long a line waits for those of other nodes with earlier times: longer than agents wait for their sources. */
const HOLD_MS = 600;
const RELEASE_MS = 100;

/** Notices come first. */
const timeOf = (entry: FlowsEntry): number => (entry.type === 'notice' ? 0 : Date.parse(entry.time));

/** An entry with its node and the names of its addresses, for programs. */
function withNames(entry: FlowLine | DnsLine, node: string, names: FlowNames) {
  const named = <T extends { readonly ip: string } | null>(end: T) =>
    end && { ...end, name: names.of(end.ip) };
  const client = named(entry.client);
  return entry.type === 'dns'
    ? { node, ...entry, client, server: named(entry.server) }
    : { node, ...entry, client, endpoint: named(entry.endpoint) };
}

/** Where the flows of a command come from. */
interface ReadCluster {
  readonly nodes: readonly string[];
  readonly source: FlowSource | FlowStreams;
  readonly client: Client;
  /** Addresses of the client outside. */
  readonly outside: readonly string[];
  /** Awaits the end of a node's flows. */
  tolerate(ended: Promise<void>, node: string, output: Output): Promise<void>;
  close(): void;
}

async function openSource(parsed: {
  readonly options: RemoteValues & { readonly node: string | null };
  readonly given: ReadonlySet<string>;
}): Promise<ReadCluster> {
  const { options } = parsed;
  const remote = await openRemote('flows', parsed);
  if (!remote) {
    const cluster = await openCluster(options.name);
    const { state } = cluster.report;
    const nodes = selectNodes('flows', options.node, state);
    const transport = httpTransport(cluster.credentials);
    return {
      nodes,
      source: cluster,
      client: createClient(transport, 'fairlead-flows'),
      outside: state.outsideAddresses,
      tolerate: (ended) => ended,
      close: () => transport.close(),
    };
  }
  const nodes = selectRemoteNodes('flows', options.node, remote);
  let failed = 0;
  return {
    nodes,
    source: remote,
    client: remote.client,
    outside: [],
    // The other nodes still have flows to show.
    tolerate: (ended, node, output) =>
      ended.catch((error: unknown) => {
        if (++failed === nodes.length) throw error;
        output.err(`fairlead: ${node}: ${problemText(error)}\n`);
      }),
    close: () => remote.close(),
  };
}
