import type { ServerResponse } from 'node:http';
import type { WebSocket } from 'ws';
import { type ClusterAccess, openCluster } from '../cluster/cluster-access.ts';
import { readFaultRequest } from '../cluster/faults.ts';
import { readObjectQuestion } from '../cluster/object-text.ts';
import { DEFAULT_CLUSTER } from '../cluster/state.ts';
import { createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import type { Lesson } from '../learn/lesson.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { createMutex } from '../lib/semaphore.ts';
import { createEdgeCounter } from './edge-counter.ts';
import { createEventHub } from './event-hub.ts';
import { createFlowFeed } from './flow-feed.ts';
import { lessonOperations } from './lesson-operations.ts';
import { modeOperations } from './mode-operations.ts';
import { followObjects } from './object-feed.ts';
import { readPageFiles } from './page-files.ts';
import { type Operation, type PageServer, servePage } from './page-server.ts';
import { connectShell, endShell } from './pod-shell.ts';
import type { ClusterView, PageEvent } from './view.ts';

const MAX_PAGES = 16;
const MAX_SHELLS = 16;
const TICK_MS = 1000;

/**
 * Serves the page of a cluster until the signal aborts. It reads the cluster as `explain` and `flows` do, so that it works
 * without root for the user of `sudo fairlead up`. Flows are read only while a page is open. Throws FairleadError if there is no
 * such cluster, or the port is in use.
 */
export async function serveClusterPage(options: {
  readonly name: string;
  readonly port: number;
  readonly token: string;
  /** The command as the user types it: "./fairlead". */
  readonly command: string;
  readonly ownLessons: readonly Lesson[];
  readonly clock: Clock;
  readonly random: () => number;
  readonly signal: AbortSignal;
}): Promise<PageServer> {
  const { name, clock, random, signal } = options;
  const files = readPageFiles();
  const opened = await openCluster(name);
  const transport = httpTransport(opened.credentials);
  signal.addEventListener('abort', () => transport.close());
  const client = createClient(transport, 'fairlead-ui');
  const hub = createEventHub();
  const objects = followObjects({
    client,
    clock,
    random,
    logger: silentLogger,
    signal,
    nodeAnswers: opened.report.state.dnsAddresses,
    onChanges: (changes) => hub.send({ type: 'objects', full: false, changes }),
  });
  await objects.synced;

  const outside = new Set(opened.report.state.outsideAddresses);
  const counter = createEdgeCounter({
    ...objects,
    ownerOf: (ip) => (outside.has(ip) ? 'outside' : objects.ownerOf(ip)),
  });
  const notices = new Map<string, string>();
  const noticeEvent = (): PageEvent => ({
    type: 'notices',
    notices: [...notices].map(([key, text]) => {
      const [node = ''] = key.split(' ');
      return node === '' || text.includes(node) ? text : `${node}: ${text}`;
    }),
  });
  const flows = createFlowFeed({
    cluster: () => openCluster(name),
    counter,
    clock,
    onNotice(node, subject, notice) {
      const key = `${node} ${subject}`;
      if ((notices.get(key) ?? null) === notice) return;
      if (notice === null) notices.delete(key);
      else notices.set(key, notice);
      hub.send(noticeEvent());
    },
  });
  let last = clock.now();
  const sendTicks = async () => {
    while (!signal.aborted) {
      await pause(clock, TICK_MS, signal);
      const now = clock.now();
      const tick = counter.take(Math.max(0.001, (now - last) / 1000));
      last = now;
      hub.send({ type: 'tick', tick });
    }
    hub.close();
  };
  void sendTicks();

  let shells = 0;
  return await servePage({
    port: options.port,
    token: options.token,
    files,
    operations: new Map([
      ...operationsOf(name),
      ...modeOperations(name),
      ...lessonOperations({ name, client, clock, ownLessons: options.ownLessons }),
    ]),
    openStream(response: ServerResponse) {
      if (hub.size >= MAX_PAGES) return false;
      const feed = flows.open();
      const first: PageEvent[] = [
        { type: 'cluster', cluster: viewCluster(opened, options.command) },
        { type: 'objects', full: true, changes: objects.snapshot() },
        noticeEvent(),
      ];
      hub.add(response, first, () => feed.close());
      return true;
    },
    sockets: new Map([
      [
        'shell',
        (socket: WebSocket, query: URLSearchParams) => {
          if (shells >= MAX_SHELLS) {
            endShell(socket, `${MAX_SHELLS} shells are open: close one of them`);
            return;
          }
          shells++;
          socket.on('close', () => shells--);
          connectShell(socket, opened.credentials, {
            pod: query.get('pod') ?? '',
            container: query.get('container'),
          });
        },
      ],
    ]),
  });
}

function viewCluster({ report: { state } }: ClusterAccess, command: string): ClusterView {
  const { name, mode, ipFamily } = state;
  // The commands that the page shows are meant for this cluster, also where there are several.
  return {
    name,
    mode,
    ipFamily,
    command: name === DEFAULT_CLUSTER ? command : `FAIRLEAD_CLUSTER=${name} ${command}`,
  };
}

function operationsOf(name: string): Map<string, Operation> {
  const traces = createMutex();
  return new Map<string, Operation>([
    [
      'POST explain',
      async (body) => {
        const { from, to, family } = readQuestion(body);
        return await (await openCluster(name)).explain({ from, to, family });
      },
    ],
    ['POST object', async (body) => await (await openCluster(name)).objectText(readObjectQuestion(body))],
    ['GET faults', async () => await (await openCluster(name)).faults.list()],
    ['POST faults', async (body) => await (await openCluster(name)).faults.plant(readFaultRequest(body))],
    ['DELETE faults', async () => await (await openCluster(name)).faults.undoAll()],
    [
      'POST trace',
      async (body, _query, signal) => {
        const question = readQuestion(body);
        return await traces.run(async () => {
          // The page has been closed, or asks for another path.
          if (signal.aborted) return null;
          return await (await openCluster(name)).trace(question);
        });
      },
    ],
  ]);
}

/** Reads the two ends of a question: {from, to, family?}. Throws FairleadError. */
function readQuestion(body: unknown): { from: string; to: string; family: 'ipv4' | 'ipv6' | null } {
  const {
    from,
    to,
    family = null,
  } = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  if (typeof from !== 'string' || from === '') throw badRequest('choose where the packet starts');
  if (typeof to !== 'string' || to === '') throw badRequest('choose where the packet goes');
  if (family !== null && family !== 'ipv4' && family !== 'ipv6')
    throw badRequest('family must be ipv4, ipv6 or null');
  return { from, to, family };
}

const badRequest = (message: string) =>
  new FairleadError(message, { op: 'answer the page', code: 'BadRequest' });
