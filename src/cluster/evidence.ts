import { mkdirSync, writeFileSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { readContainerLog } from './container-logs.ts';
import { podProblem } from './readiness.ts';
import { type ClusterState, clusterPaths } from './state.ts';

const TIMEOUT_MS = 20_000;
/** Lines that are shown of each log. */
const SHOWN_LINES = 20;
/** Containers whose logs are kept, and events that are shown. */
const MAX_LOGS = 200;
const MAX_EVENTS = 50;
const LOG_BYTES = String(10 * 1024 * 1024);

/**
 * Writes the logs of a cluster's containers and of its processes, its pods and its events to a folder. Returns the ends of
 * the containers' logs and the last events, as text.
 */
export async function saveEvidence(state: ClusterState, folder: string): Promise<string> {
  const paths = clusterPaths(state.name);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  await cp(paths.logs, join(folder, 'processes'), { recursive: true });
  const transport = httpTransport(readKubeconfig(paths.kubeconfig));
  try {
    const client = createClient(transport, 'fairlead-run');
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const [pods, events] = await Promise.all([
      client.list(RESOURCES.pods),
      client.request('GET', '/api/v1/events', undefined, { signal }) as Promise<{ items?: ShownEvent[] }>,
    ]);
    const lines = eventLines(events.items ?? []);
    writeFileSync(join(folder, 'events.txt'), `${lines.join('\n')}\n`);
    writeFileSync(join(folder, 'pods.json'), JSON.stringify(pods.items, null, 2));
    const logs: string[] = [];
    for (const { pod, container } of pods.items.flatMap(containersOf).slice(0, MAX_LOGS)) {
      const { namespace = '', name = '' } = pod.metadata ?? {};
      const log = await readContainerLog(
        transport,
        { namespace, pod: name, container },
        { limitBytes: LOG_BYTES },
      ).catch((error: unknown) => `(no log: ${messageOf(error)})\n`);
      writeFileSync(join(folder, `${namespace}_${name}_${container}.log`), log);
      const end = log.trimEnd().split('\n').slice(-SHOWN_LINES);
      logs.push(`--- ${namespace}/${name} ${container} (${podProblem(pod)})`, ...end);
    }
    return [...logs, '--- events', ...lines.slice(-MAX_EVENTS), ''].join('\n');
  } finally {
    transport.close();
  }
}

const containersOf = (pod: Pod) =>
  [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])].map(({ name }) => ({
    pod,
    container: name,
  }));

interface ShownEvent {
  readonly type?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly lastTimestamp?: string | null;
  readonly eventTime?: string | null;
  readonly involvedObject?: { readonly kind?: string; readonly namespace?: string; readonly name?: string };
}

/** Returns a line for each event, the latest last. */
function eventLines(events: readonly ShownEvent[]): string[] {
  const timeOf = ({ lastTimestamp, eventTime }: ShownEvent) => lastTimestamp ?? eventTime ?? '';
  return events
    .toSorted((a, b) => timeOf(a).localeCompare(timeOf(b)))
    .map((event) => {
      const { kind, namespace, name } = event.involvedObject ?? {};
      return `${timeOf(event)} ${event.type} ${event.reason} ${kind} ${namespace ?? ''}/${name}: ${event.message?.replaceAll('\n', ' ')}`;
    });
}
