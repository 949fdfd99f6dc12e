import { request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { controlSocketPath } from '../agent/control-socket.ts';
import { agentNotRunning } from '../cluster/agent-client.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { type ClusterState, clusterPaths, DEFAULT_CLUSTER, requireCluster } from '../cluster/state.ts';
import { FLOW_EVENT_KINDS } from '../dataplane/flow-event.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { silentLogger } from '../lib/log.ts';
import type { FlowLine, FlowsLost } from '../proxy/flow-stream.ts';
import { type Command, numberOption, parseArguments, textOption, usageError } from './command.ts';
import { type FlowNames, followNames } from './flow-names.ts';
import { nodeOption } from './node-option.ts';

/** Until Ctrl-C, in effect. */
const MOST_EVENTS = 1_000_000_000;

export const command: Command = {
  help: `Usage: fairlead flows [--service S] [--pod P] [--kind K] [--node NODE] [--count N] [--json] [--name NAME]

Tells what happens to connections through Services while it happens, until Ctrl-C: who asked which Service, which
endpoint was chosen, how soon it answered, or that it did not.

  --service S   only flows of this Service: [NAMESPACE/]NAME
  --pod P       only flows from or to this pod: [NAMESPACE/]NAME
  --kind K      only these, with commas between: ${FLOW_EVENT_KINDS.join(', ')}
  --node NODE   only what this node sees
  --count N     end after so many
  --json        print a JSON object a line
  --name NAME   the cluster (default: default)
`,
  async run(argv, output) {
    const options = {
      service: { type: 'string' },
      pod: { type: 'string' },
      kind: { type: 'string' },
      node: { type: 'string' },
      count: { type: 'string' },
      json: { type: 'boolean' },
      name: { type: 'string' },
    } as const;
    const parsed = parseArguments('flows', argv, options, { least: 0, most: 0, names: '' });
    requireRoot('flows');
    const state = requireCluster(textOption(parsed, 'name', DEFAULT_CLUSTER));
    const nodes = nodeOption('flows', parsed, state);
    const kinds = kindsOf(textOption(parsed, 'kind', ''));
    const service = qualified(textOption(parsed, 'service', ''));
    const pod = qualified(textOption(parsed, 'pod', ''));
    const count = numberOption('flows', parsed, 'count', MOST_EVENTS, 1, MOST_EVENTS);

    const end = new AbortController();
    const stop = () => end.abort();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    try {
      const client = createClient(transport, 'fairlead-flows');
      const names = await followNames(client, state.outsideAddresses, silentLogger, end.signal);
      let told = 0;
      const tell = (node: string, line: FlowLine | FlowsLost) => {
        if ('lost' in line) {
          output.err(`fairlead: ${node}: ${line.lost} events were left out here: too many to be read\n`);
          return;
        }
        const named = withNames(line, node, names);
        if (kinds && !kinds.has(line.kind)) return;
        if (service && line.service.name?.replace(/:.*/, '') !== service) return;
        if (pod && named.client.name !== pod && named.endpoint.name !== pod) return;
        if (told >= count) return;
        output.out(parsed.values['json'] ? `${JSON.stringify(named)}\n` : textOf(named));
        if (++told >= count) stop();
      };
      await Promise.all(nodes.map((node) => readFlows(state, node, (line) => tell(node, line), end.signal)));
    } catch (error) {
      if (!end.signal.aborted) throw error;
    } finally {
      stop();
      process.off('SIGINT', stop).off('SIGTERM', stop);
      transport.close();
    }
    return 0;
  },
};

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
  const place = ({ ip, port }: { ip: string; port: number }) =>
    ip.includes(':') ? `[${ip}]:${port}` : `${ip}:${port}`;
  const end = (one: NamedEnd) => (one.name ? `${one.name} ${place(one)}` : place(one));
  const asked = service.name ? `${service.name} ${place(service)}` : place(service);
  const took = micros > 0 ? `  ${(micros / 1000).toFixed(micros < 10_000 ? 2 : 0)} ms` : '';
  const words = [time.slice(11, 23), node, kind.padEnd(11), protocol];
  return `${words.join('  ')}  ${end(client)} → ${asked} → ${end(endpoint)}${took}\n`;
}

function kindsOf(text: string): Set<string> | null {
  if (text === '') return null;
  const kinds = text.split(',').map((kind) => kind.trim());
  const wrong = kinds.find((kind) => !FLOW_EVENT_KINDS.some((known) => known === kind));
  if (wrong === undefined) return new Set(kinds);
  throw usageError('flows', `--kind: ${JSON.stringify(wrong)} is none of ${FLOW_EVENT_KINDS.join(', ')}`);
}

const qualified = (name: string): string | null =>
  name === '' ? null : name.includes('/') ? name : `default/${name}`;

/** Reads a node's stream until the signal. Throws FairleadError when its agent does not run, or stops. */
function readFlows(
  state: ClusterState,
  node: string,
  onLine: (line: FlowLine | FlowsLost) => void,
  signal: AbortSignal,
): Promise<void> {
  const socketPath = controlSocketPath(join(clusterPaths(state.name).node(node), 'state'));
  return new Promise((resolve, reject) => {
    const over = (error?: unknown) => {
      if (signal.aborted) resolve();
      else reject(agentNotRunning(state, node, error));
    };
    const call = request({ socketPath, path: '/flows', signal });
    call.on('response', (response) => {
      // Errors of the response come out of here as well.
      createInterface({ input: response })
        .on('line', (line) => onLine(JSON.parse(line)))
        .on('error', over)
        .on('close', () => over());
      response.on('error', over);
    });
    call.on('error', over);
    call.end();
  });
}
