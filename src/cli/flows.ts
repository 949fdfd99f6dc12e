import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { agentNotRunning } from '../cluster/agent-client.ts';
import { type ClusterAccess, openCluster } from '../cluster/cluster-access.ts';
import { FLOW_EVENT_KINDS } from '../dataplane/flow-event.ts';
import { createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import { hostPort } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import type { FlowLine, FlowsLost } from '../proxy/flow-stream.ts';
import { defineCommand, NAME_OPTION } from './command.ts';
import { type FlowNames, followNames } from './flow-names.ts';
import { selectNodes } from './node-option.ts';
import { flag, suggestion, text, usageError, wholeNumber } from './options.ts';

export const command = defineCommand({
  name: 'flows',
  summary: 'show connections through Services as they happen',
  description: [
    'Shows connections through Services as they happen, until Ctrl-C: the client, the Service, the chosen endpoint, and how long it took to answer, or that it did not.',
  ],
  arguments: [],
  options: {
    service: text('S', 'only flows of this Service: [NAMESPACE/]NAME', { main: true }),
    pod: text('P', 'only flows from or to this pod: [NAMESPACE/]NAME', { main: true }),
    kind: text('K', `only these kinds, separated by commas: ${FLOW_EVENT_KINDS.join(', ')}`, { main: true }),
    node: text('NODE', 'only flows that this node sees'),
    count: wholeNumber('N', [0, 0, 1_000_000_000], 'stop after N events; 0: no limit'),
    json: flag('print one JSON object per line'),
    name: NAME_OPTION,
  },
  async run({ options }, output) {
    const kinds = kindsOf(options.kind ?? '');
    const service = qualified(options.service ?? '');
    const pod = qualified(options.pod ?? '');
    const count = options.count === 0 ? Number.POSITIVE_INFINITY : options.count;
    const cluster = await openCluster(options.name);
    const { state } = cluster.report;
    const nodes = selectNodes('flows', options.node, state);
    const end = new AbortController();
    const stop = () => end.abort();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    output.unread.addEventListener('abort', stop);
    const transport = httpTransport(cluster.credentials);
    try {
      const client = createClient(transport, 'fairlead-flows');
      const names = await followNames(client, state.outsideAddresses, silentLogger, end.signal);
      let shown = 0;
      const show = (node: string, line: FlowLine | FlowsLost) => {
        if ('lost' in line) {
          output.err(`fairlead: ${node}: ${line.lost} events were dropped because the output is too slow\n`);
          return;
        }
        const named = withNames(line, node, names);
        if (kinds && !kinds.has(line.kind)) return;
        if (service && line.service.name?.replace(/:.*/, '') !== service) return;
        if (pod && named.client.name !== pod && named.endpoint.name !== pod) return;
        if (shown >= count) return;
        output.out(options.json ? `${JSON.stringify(named)}\n` : textOf(named));
        if (++shown >= count) stop();
      };
      await Promise.all(
        nodes.map((node) => readFlows(cluster, node, (line) => show(node, line), end.signal)),
      );
    } catch (error) {
      if (!end.signal.aborted) throw error;
    } finally {
      stop();
      process.off('SIGINT', stop).off('SIGTERM', stop);
      transport.close();
    }
    return 0;
  },
});

type NamedEnd = FlowLine['client'] & { readonly name: string | null };
type NamedFlow = Omit<FlowLine, 'client' | 'endpoint'> & {
  readonly node: string;
  readonly client: NamedEnd;
  readonly endpoint: NamedEnd;
};

function withNames(line: FlowLine, node: string, names: FlowNames): NamedFlow {
  const named = (end: FlowLine['client']): NamedEnd => ({ ...end, name: names.of(end.ip) });
  return { ...line, node, client: named(line.client), endpoint: named(line.endpoint) };
}

function textOf({ time, node, kind, protocol, client, service, endpoint, micros }: NamedFlow): string {
  const end = (one: NamedEnd) => (one.name ? `${one.name} ${hostPort(one)}` : hostPort(one));
  const asked = service.name ? `${service.name} ${hostPort(service)}` : hostPort(service);
  const took = micros > 0 ? `  ${(micros / 1000).toFixed(micros < 10_000 ? 2 : 0)} ms` : '';
  const words = [time.slice(11, 23), node, kind.padEnd(11), protocol];
  return `${words.join('  ')}  ${end(client)} → ${asked} → ${end(endpoint)}${took}\n`;
}

function kindsOf(text: string): Set<string> | null {
  if (text === '') return null;
  const kinds = text.split(',').map((kind) => kind.trim());
  const wrong = kinds.find((kind) => !FLOW_EVENT_KINDS.some((known) => known === kind));
  if (wrong === undefined) return new Set(kinds);
  throw usageError(
    'flows',
    `--kind takes ${FLOW_EVENT_KINDS.join(', ')}, not ${JSON.stringify(wrong)}${suggestion(wrong, FLOW_EVENT_KINDS)}`,
  );
}

const qualified = (name: string): string | null =>
  name === '' ? null : name.includes('/') ? name : `default/${name}`;

/** Reads a node's events until the signal aborts. Throws FairleadError if its agent is not running, or stops. */
async function readFlows(
  cluster: ClusterAccess,
  node: string,
  onLine: (line: FlowLine | FlowsLost) => void,
  signal: AbortSignal,
): Promise<void> {
  let cause: unknown;
  try {
    const input = Readable.from(await cluster.flows(node, signal), { objectMode: false });
    input.on('error', () => {});
    for await (const line of createInterface({ input })) onLine(JSON.parse(line));
  } catch (error) {
    if (error instanceof FairleadError) throw error;
    cause = error;
  }
  if (!signal.aborted) throw agentNotRunning(cluster.report.state, node, cause);
}
