import type { Service } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import { type Problem, problem } from './problem.ts';

/** Ports of Services that are explained: an explanation takes some ten milliseconds. */
const MAX_EXPLAINED = 50;
const CONCURRENCY = 4;
/** The faults of a Service or its pods; policies that deny a node's packets, for example, are not. */
const FAULTY = new Set(['refused', 'queue-full', 'filtered', 'filtered-rejected']);

/**
 * Explains the way from a node to each port of the Services, and describes what keeps endpoints from accepting it: a target port
 * where no process listens, a name of a port that no pod has, labels that almost match. Sends no packets.
 */
export async function serviceFaults(
  services: readonly Service[],
  node: string,
  explain: (request: ExplainRequest) => Promise<Explanation>,
): Promise<Problem[]> {
  const asked = services.flatMap(portsToExplain).slice(0, MAX_EXPLAINED);
  const slots = createSemaphore(CONCURRENCY);
  const found = await Promise.all(
    asked.map(({ title, port, to }) =>
      slots.run(async () => {
        try {
          return faultsIn(await explain({ from: `node/${node}`, to, family: null }), title, port);
        } catch (error) {
          const message = `${title}: port ${port} was not checked: ${messageOf(error)}`;
          return [problem('agent-silent', title, message)];
        }
      }),
    ),
  );
  const all = found.flat();
  return [...new Map(all.map((one) => [one.message, one])).values()];
}

interface Asked {
  /** "Service shop/web". */
  readonly title: string;
  readonly port: string;
  readonly to: string;
}

function portsToExplain({ metadata, spec }: Service): Asked[] {
  const { namespace, name } = metadata ?? {};
  if (!spec?.selector || !spec.clusterIPs?.some((ip) => ip !== 'None')) return [];
  return (spec.ports ?? []).flatMap(({ port, protocol = 'TCP' }) =>
    protocol === 'SCTP'
      ? []
      : [
          {
            title: `Service ${namespace}/${name}`,
            port: `${port}/${protocol}`,
            to: `svc/${namespace}/${name}:${port}/${protocol}`,
          },
        ],
  );
}

function faultsIn({ verdict, endpoints, causes }: Explanation, title: string, port: string): Problem[] {
  if (verdict === 'delivered' || verdict === 'unknown') return [];
  const isFaulty = endpoints.length === 0 || endpoints.some(({ arrival }) => FAULTY.has(arrival));
  if (!isFaulty) return [];
  const own = causes.filter(
    ({ object, field }) => !object?.includes('NetworkPolicy') && !field?.endsWith('TrafficPolicy'),
  );
  // The same fault of several endpoints is one problem.
  return [...Map.groupBy(own, ({ field, fix, text }) => fix ?? field ?? text).values()].flatMap((same) => {
    const [first] = same;
    if (!first) return [];
    const { text, object, field, fix } = first;
    const others = same.length > 1 ? ` (and the same of ${same.length - 1} more)` : '';
    const where = object === null || object === title ? '' : ` (${object})`;
    return problem(
      endpoints.length === 0 ? 'service-without-endpoints' : 'service-refused',
      title,
      `${title}, port ${port}: ${text}${others}${fix === null ? '' : `; ${fix}`}${where}`,
      object === title ? field : null,
    );
  });
}
