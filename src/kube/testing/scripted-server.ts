import { type ManualClock, manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createClient } from '../client.ts';
import { type Informer, type InformerOptions, startInformer } from '../informer.ts';
import type { ApiRequest, ApiResponse } from '../transport.ts';
import { type ConfigMap, RESOURCES } from '../types.ts';
import { jsonAnswer } from './json-answer.ts';

/** An API server with one kind that does what a test tells it: answers lists, and leaves watches open to be written to. */
export interface Script {
  readonly requests: URL[];
  objects: ConfigMap[];
  version: number;
  /** Status of the next requests, instead of an answer. */
  readonly refusals: number[];
  /** Status of all requests from now on; null: answers. */
  refuse: number | null;
  /** The open watch. */
  watch: { send(type: string, object: object): void; end(): void; break(): void } | null;
  transport(request: ApiRequest): Promise<ApiResponse>;
}

export function script(): Script {
  const server: Script = {
    requests: [],
    objects: [],
    version: 10,
    refusals: [],
    refuse: null,
    watch: null,
    async transport(request) {
      const url = new URL(request.path, 'http://server');
      server.requests.push(url);
      const refusal = server.refuse ?? server.refusals.shift();
      if (refusal) {
        return jsonAnswer(refusal, {
          kind: 'Status',
          code: refusal,
          reason: REASONS[refusal] ?? 'InternalError',
          message: refusal === 403 ? 'User "u" cannot' : 'no',
        });
      }
      if (!url.searchParams.has('watch')) {
        const limit = Number(url.searchParams.get('limit'));
        const from = Number(url.searchParams.get('continue') || 0);
        const more = from + limit < server.objects.length ? { continue: String(from + limit) } : {};
        const metadata = { resourceVersion: String(server.version), ...more };
        return jsonAnswer(200, { metadata, items: server.objects.slice(from, from + limit) });
      }
      const stream = new TransformStream<Uint8Array, Uint8Array>();
      const writer = stream.writable.getWriter();
      writer.closed.catch(() => {});
      request.signal?.addEventListener(
        'abort',
        () => void writer.abort(new Error('aborted')).catch(() => {}),
      );
      server.watch = {
        send(type, object) {
          // Cut in the middle, as networks do.
          const bytes = Buffer.from(`${JSON.stringify({ type, object })}\n`);
          void writer.write(bytes.subarray(0, 7)).catch(() => {});
          void writer.write(bytes.subarray(7)).catch(() => {});
        },
        end: () => void writer.close().catch(() => {}),
        break: () => void writer.abort(new Error('connection reset')).catch(() => {}),
      };
      return { status: 200, headers: {}, body: stream.readable };
    },
  };
  return server;
}

export function map(name: string, version: number, uid = name, labels = {}): ConfigMap {
  return { metadata: { name, namespace: 'n', uid, labels, resourceVersion: String(version) } };
}

const REASONS: Readonly<Record<number, string>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  410: 'Expired',
  429: 'TooManyRequests',
};

export interface Bench {
  readonly server: Script;
  readonly clock: ManualClock;
  readonly informer: Informer<ConfigMap>;
  readonly events: string[];
  watches(count: number): Promise<void>;
}

/** Starts an informer of ConfigMaps of a scripted server. */
export function startScripted(
  transport: Script['transport'],
  clock: ManualClock,
  signal: AbortSignal,
  options: Partial<InformerOptions<ConfigMap>>,
): Informer<ConfigMap> {
  return startInformer({
    client: createClient(transport, 'test', clock),
    resource: RESOURCES.configMaps,
    clock,
    random: () => 0,
    logger: silentLogger,
    signal,
    ...options,
  });
}

export async function bench(
  objects: ConfigMap[],
  body: (bench: Bench) => Promise<void>,
  options: Partial<
    Pick<InformerOptions<ConfigMap>, 'transform' | 'optional' | 'onMissingRule' | 'logger' | 'random'>
  > = {},
): Promise<void> {
  const server = script();
  server.objects = objects;
  const clock = manualClock();
  const ending = new AbortController();
  const events: string[] = [];
  const informer = startScripted(server.transport, clock, ending.signal, options);
  informer.handle({
    onAdd: (object) => events.push(`+${object.metadata?.name}`),
    onUpdate: (object, before) =>
      events.push(`${before.metadata?.resourceVersion}>${object.metadata?.resourceVersion}`),
    onDelete: (object) => events.push(`-${object.metadata?.name}`),
  });
  const watches = (count: number) =>
    until(
      () =>
        server.requests.filter((url) => url.searchParams.has('watch')).length >= count &&
        server.watch !== null,
    );
  try {
    await informer.synced;
    await watches(1);
    await body({ server, clock, informer, events, watches });
  } finally {
    ending.abort();
  }
}

/** Runs the event loop until a condition holds, without real time: the clock of these tests is manual. */
export async function until(check: () => boolean): Promise<void> {
  for (let i = 0; i < 5000; i++) {
    if (check()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error('it never came true');
}
