import { readBody } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import type { Pod } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { podProblem } from './readiness.ts';

const TIMEOUT_MS = 20_000;
/** Containers whose last line is shown. */
const MAX_LINES = 5;
const MAX_LINE_CHARACTERS = 300;

export interface ContainerName {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

/** Reads the log of a container. `query`: parameters of the API, such as limitBytes. */
export async function readContainerLog(
  transport: Transport,
  { namespace, pod, container }: ContainerName,
  query: Readonly<Record<string, string>>,
): Promise<string> {
  const search = new URLSearchParams({ container, ...query });
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/log?${search}`;
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const { status, body } = await transport({ method: 'GET', path, headers: {}, signal });
  const text = await readBody(body);
  return status === 200 ? text : `(no log: status ${status})\n`;
}

/** Returns, for pods that are not ready, the last line that each ended container has written; none for an empty log. */
export async function lastLogLines(transport: Transport, pods: readonly Pod[]): Promise<readonly string[]> {
  const ended = pods.filter((pod) => podProblem(pod) !== 'ready').flatMap(endedContainers);
  const lines = await Promise.all(
    ended.slice(0, MAX_LINES).map(async ({ isPrevious, ...name }) => {
      const query = { tailLines: '1', limitBytes: '4096', ...(isPrevious ? { previous: 'true' } : {}) };
      const text = await readContainerLog(transport, name, query).catch(
        (error: unknown) => `(no log: ${messageOf(error)})`,
      );
      const line = text.trimEnd().slice(0, MAX_LINE_CHARACTERS);
      return line === '' ? [] : [`Pod ${name.pod}: container ${name.container} wrote at last: ${line}`];
    }),
  );
  return lines.flat();
}

function endedContainers({ metadata, status }: Pod) {
  const { namespace = '', name = '' } = metadata ?? {};
  return [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])].flatMap(
    ({ name: container, state, lastState }) => {
      const { terminated = null } = state ?? {};
      const isPrevious = terminated === null && Boolean(lastState?.terminated);
      const isCompleted = terminated?.exitCode === 0 && status?.phase === 'Succeeded';
      return (terminated && !isCompleted) || isPrevious
        ? [{ namespace, pod: name, container, isPrevious }]
        : [];
    },
  );
}
