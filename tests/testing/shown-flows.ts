import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import type { DnsLine, FlowLine } from '../../src/flows/flow-line.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { type Cluster, spawnFairlead } from './cluster.ts';
import type { Asker } from './question-asker.ts';

/** A connection of the pod "client", in the scene of question-scene.ts, and the line of `flows` that shows it. */
export interface ShownRow {
  readonly name: string;
  /** LONE stands for the address of the pod of this name. */
  readonly host: string;
  readonly port: number;
  readonly verdict: FlowLine['verdict'];
  /** The Service; null: the endpoint is addressed itself. */
  readonly service?: string | null;
  readonly endpoint?: string;
  readonly reason?: RegExp;
  /** Names of the search path that were tried before. */
  readonly tried?: number;
}

export const SHOWN: readonly ShownRow[] = [
  {
    name: 'an answer through a Service',
    host: 'local',
    port: 80,
    verdict: 'delivered',
    service: 'default/local',
  },
  {
    name: 'an answer of a pod that is addressed itself',
    host: 'LONE',
    port: 8080,
    verdict: 'delivered',
    service: null,
    endpoint: 'default/lone',
  },
  {
    name: 'a Service without endpoints',
    host: 'typo',
    port: 80,
    verdict: 'rejected',
    service: 'default/typo',
    reason: /no ready endpoints/,
  },
  {
    name: 'a target port where no process listens',
    host: 'wrong-target',
    port: 80,
    verdict: 'rejected',
    service: 'default/wrong-target',
    reason: /RST: nothing listens/,
  },
  {
    name: 'a port of a pod where no process listens',
    host: 'LONE',
    port: 9,
    verdict: 'rejected',
    service: null,
    endpoint: 'default/lone',
    reason: /RST: nothing listens/,
  },
  {
    name: 'a pod that a policy isolates',
    host: 'guarded',
    port: 80,
    verdict: 'dropped',
    service: 'default/guarded',
    reason: /NetworkPolicy default\/guarded/,
  },
  {
    name: 'a cluster IP of no Service',
    host: '10.96.50.250',
    port: 80,
    verdict: 'dropped',
    reason: /no Service has this cluster IP/,
  },
  {
    name: 'a name that does not exist',
    host: 'nothing.lab.svc.cluster.local',
    port: 80,
    verdict: 'not-found',
    tried: 2,
  },
];

type Entry = (FlowLine | DnsLine) & { client: { name: string | null }; endpoint?: { name: string | null } };

/** The lines of `fairlead flows`. */
export interface FlowsReader {
  /** Resolves when it has said that it misses nothing from now on. */
  readonly ready: Promise<void>;
  readonly entries: readonly Entry[];
  stop(): void;
}

export function startFlows(cluster: Cluster, pod = 'client'): FlowsReader {
  const words = ['flows', '--name', cluster.name, '--pod', pod, '-o', 'json'];
  const child = spawnFairlead(cluster.stateRoot, words);
  const entries: Entry[] = [];
  assert.ok(child.stdout);
  createInterface({ input: child.stdout }).on('line', (line) => entries.push(JSON.parse(line)));
  const { promise: ready, resolve } = Promise.withResolvers<void>();
  assert.ok(child.stderr);
  createInterface({ input: child.stderr }).on('line', (line) => {
    if (line.startsWith('ready')) resolve();
  });
  return { ready, entries, stop: () => child.kill('SIGTERM') };
}

/** Connects until the line is shown: the command may not watch yet. */
export async function checkShown(
  reader: FlowsReader,
  asker: Asker,
  lone: string,
  row: ShownRow,
): Promise<void> {
  const host = row.host.replace('LONE', lone);
  const isIt = (entry: Entry) =>
    entry.verdict === row.verdict &&
    (entry.type === 'dns'
      ? entry.name.startsWith(host) && entry.tried.length >= (row.tried ?? 0)
      : row.tried === undefined &&
        (row.service === undefined || (entry.service?.name?.replace(/:.*/, '') ?? null) === row.service) &&
        (row.endpoint === undefined || entry.endpoint?.name === row.endpoint) &&
        (row.reason === undefined || row.reason.test(entry.reason ?? '')) &&
        (row.service !== undefined || entry.service === null));
  await eventually(
    async () => {
      await asker.ask({ host, port: row.port, protocol: 'tcp', family: 4, count: 1, patienceMs: 1000 });
      return reader.entries.find(isIt);
    },
    (found) => found !== undefined,
    60_000,
  );
}
