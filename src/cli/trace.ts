import { openCluster } from '../cluster/cluster-access.ts';
import { type OnProblem, traceRemotely } from '../cluster/remote-trace.ts';
import { watchRemotely } from '../cluster/remote-watch.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import type { TracedFlow, TraceQuestion } from '../cluster/trace-flow.ts';
import { watchFlow } from '../cluster/watch-flow.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { renderExplanation } from '../observe/explain-text.ts';
import { isBlackHole } from '../trace/packet-sizes.ts';
import { renderLookups, renderTrace } from '../trace/trace-text.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag, text, usageError, wholeNumber } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { openRemote, ownCluster, REMOTE_OPTIONS, type RemoteValues } from './remote-option.ts';

export const command = defineCommand({
  name: 'trace',
  summary: 'send one packet and show every device that it passes',
  description: [
    'Opens one real connection (or sends one datagram) from FROM to TO, and shows every network device that its first packet and the answer pass, with the time, the addresses, and the rule, map entry or proxy that changes them. If no answer comes back, it shows where the packet was last seen, the kernel counters that increased meanwhile, and the fix. Each step of "explain" is compared with the packet. With --kubeconfig or --context: on a cluster whose agents run in pods; each agent observes its node, and the one on the client\'s node sends the packet.',
    'The connection carries no data; a datagram carries a short text (to port 53, a DNS query). Other traffic is not recorded, and nothing remains when the command ends.',
    'With --watch it sends nothing, and shows the path of the next connection that another client opens to a Service.',
    'When the connection is answered, packets of the largest size that both ends send follow in each direction (the processes read nothing of them); if they vanish, the trace finds the size that passes, and the two devices between which larger ones end.',
    'The exit status is 0 if every connection was answered, and no black hole was found.',
  ],
  arguments: [
    { name: 'FROM', optional: true, help: 'pod/NAME, NAMESPACE/NAME, deploy/NAME, node/NAME or outside' },
    {
      name: 'TO',
      optional: true,
      help: 'as for "explain": svc/NAME, pod/NAME, a DNS name, a URL, an address, …; then :PORT and /PROTOCOL',
    },
  ],
  synopsis: ['FROM TO[:PORT][/PROTOCOL]', '--watch svc/NAME'],
  options: {
    name: NAME_OPTION,
    count: wholeNumber('N', [1, 1, 1000], 'how many connections, one after the other'),
    watch: text('svc/NAME', 'send nothing: wait for the next connection of another client to this Service'),
    ipv4: flag('use IPv4 addresses only', { short: '4' }),
    ipv6: flag('use IPv6 addresses only', { short: '6' }),
    ...FORMAT_OPTIONS,
    ...REMOTE_OPTIONS,
  },
  examples: [
    'trace client svc/hello',
    'trace client http://hello/ -6',
    'trace --watch svc/hello',
    'trace outside node/node-1:30080/UDP -o json',
  ],
  asUser: (parsed) => ownCluster('trace', parsed),
  async run(parsed, output) {
    const {
      options,
      args: [from, to],
    } = parsed;
    const { watch } = options;
    if (options.ipv4 && options.ipv6) throw usageError('trace', 'use one of -4 and -6');
    if (watch !== null && (from !== undefined || options.ipv4 || options.ipv6))
      throw usageError('trace', '--watch does not take FROM and TO, -4 and -6');
    if (watch === null && (from === undefined || to === undefined))
      throw usageError('trace', `missing ${from === undefined ? 'FROM and TO' : 'TO'}`);
    const family = options.ipv4 ? 'ipv4' : options.ipv6 ? 'ipv6' : null;
    const flows: TracedFlow[] = [];
    const end = new AbortController();
    const stop = () => end.abort();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    output.unread.addEventListener('abort', stop);
    try {
      const question: TraceQuestion = { from: from ?? '', to: to ?? '', family };
      const source = await openSource(parsed, watch ?? question, end.signal, (node, problem) =>
        output.err(`fairlead: ${node}: ${problem}\n`),
      );
      if (source.service !== null) output.err(`waiting for a connection to ${source.service}\n`);
      try {
        while (flows.length < options.count && !end.signal.aborted) {
          const flow = await (watch === null
            ? Promise.race([source.next(), aborted(end.signal)])
            : source.next());
          if (flow === null) break;
          flows.push(flow);
          if (options.output === 'text')
            output.out(
              wrapLines(`${flows.length > 1 ? '\n' : ''}${render(flow, output.columns)}`, output.columns),
            );
        }
      } finally {
        source.close();
      }
    } finally {
      end.abort();
      process.off('SIGINT', stop).off('SIGTERM', stop);
    }
    const facts = renderFacts(options.count === 1 ? flows[0] : flows, options);
    if (facts !== null) output.out(facts);
    const isGood = ({ trace }: TracedFlow) =>
      trace?.answer.kind === 'answered' && !trace.sizes.some(isBlackHole);
    return flows.length > 0 && flows.every(isGood) ? 0 : 1;
  },
});

/** Rejects when the signal aborts: a packet without an answer is followed for seconds. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () =>
      reject(new FairleadError('interrupted', { op: 'fairlead trace', code: 'interrupted' }));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}

/** Where the flows come from, one after the other; null: there will be no more. */
interface FlowSource {
  /** The Service whose connections are waited for; null: none. */
  readonly service: string | null;
  next(): Promise<TracedFlow | null>;
  close(): void;
}

/** Opens the flows of a question, or of the connections to a Service, on the cluster that the options name. */
async function openSource(
  parsed: { readonly options: RemoteValues; readonly given: ReadonlySet<string> },
  asked: TraceQuestion | string,
  signal: AbortSignal,
  onProblem: OnProblem,
): Promise<FlowSource> {
  const remote = await openRemote('trace', parsed);
  const { name } = parsed.options;
  if (!remote)
    return typeof asked === 'string'
      ? await watchConnections(name, asked, signal)
      : await sendPackets(name, asked);
  if (typeof asked !== 'string') {
    const next = () => traceRemotely(remote, asked, onProblem);
    return { service: null, next, close: () => remote.close() };
  }
  try {
    const watcher = await watchRemotely(remote, asked, signal, onProblem);
    const close = () => {
      watcher.close();
      remote.close();
    };
    return { service: watcher.service, next: () => watcher.next(), close };
  } catch (error) {
    remote.close();
    throw error;
  }
}

/** Sends a packet for each flow; without root by the control plane, as the page does. */
async function sendPackets(cluster: string, question: TraceQuestion): Promise<FlowSource> {
  const access = await openCluster(cluster);
  return { service: null, next: () => access.trace(question), close() {} };
}

/** Waits for connections of others, whose packets this process records. */
async function watchConnections(cluster: string, watch: string, signal: AbortSignal): Promise<FlowSource> {
  requireOwner('trace --watch', cluster);
  const state = requireCluster(cluster);
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  try {
    const client = createClient(transport, 'fairlead-trace');
    const [pods, services] = await Promise.all([
      client.list(RESOURCES.pods),
      client.list(RESOURCES.services),
    ]);
    return await watchFlow(state, { pods: pods.items, services: services.items }, watch, signal);
  } finally {
    transport.close();
  }
}

function render({ explanation, lookups, trace, agreement }: TracedFlow, columns: number | null): string {
  return trace === null || agreement === null
    ? `${renderLookups(lookups, columns)}${renderExplanation(explanation)}`
    : renderTrace(explanation, trace, agreement, lookups, columns);
}
