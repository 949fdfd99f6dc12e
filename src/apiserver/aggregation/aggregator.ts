import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { timestamp } from '../../kube/timestamp.ts';
import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { User } from '../authentication/user.ts';
import { joinSockets } from '../joined-sockets.ts';
import { type Send, sendOnce, sendTwice } from '../kept-connection.ts';
import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { forwardedHeaders, isConnectionHeader, upgradeHeaders } from '../requests/forwarded-headers.ts';
import type { OutgoingResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { ResourceStore } from '../resource-store.ts';
import { StatusError } from '../status-error.ts';
import type { Store } from '../store.ts';
import { API_SERVICE_KIND, type RemoteApi, remoteApi } from './api-service.ts';
import type { RemoteClient } from './remote-client.ts';

export interface AggregatorOptions {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly client: RemoteClient;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** A group and version of an aggregated server, as shown in discovery. */
export interface RemoteVersion {
  readonly group: string;
  readonly version: string;
  readonly groupPriority: number;
  readonly versionPriority: number;
  readonly isAvailable: boolean;
  /** meta/v1 APIResources as listed by that server. */
  readonly resources: readonly JsonObject[];
}

/** Other API servers that are served through this one (apiregistration.k8s.io). */
export interface Aggregator {
  /** Forwards a request for a group and version of another server; null: this server handles it. */
  handle(context: RequestContext): Promise<OutgoingResponse | null>;
  versions(): readonly RemoteVersion[];
  /** Returns the OpenAPI v3 paths of the available servers. Servers that do not answer are omitted. */
  openapiPaths(): Promise<Readonly<Record<string, unknown>>>;
  /** Returns the OpenAPI v3 document of a path in `openapiPaths`; null if its server does not answer. */
  openapiDocument(path: string): Promise<JsonObject | null>;
  close(): void;
}

const CHECK_USER: User = { name: 'system:kube-aggregator', groups: ['system:masters'] };
const CHECK_MS = 5000;
const RECHECK_MS = 30_000;
/** Changes come in bursts; the next check starts this long after the first of them. */
const SETTLE_MS = 50;
const FOLLOWED = [API_SERVICE_KIND.collection, 'services', 'endpointslices.discovery.k8s.io'];

export function createAggregator(options: AggregatorOptions): Aggregator {
  const { store, resources, client, clock, logger } = options;
  const lists = new Map<string, readonly JsonObject[]>();
  const apiServices = () => store.list(API_SERVICE_KIND.collection).map(({ object }) => object);
  let apis = new Map<string, RemoteApi>();
  let cancelCheck: (() => void) | null = null;
  let isChecking = false;
  let isClosed = false;

  const read = () => {
    apis = new Map(
      apiServices().flatMap((object) => {
        const api = remoteApi(object);
        return api ? [[`${api.group}/${api.version}`, api] as const] : [];
      }),
    );
  };

  async function checkAll(): Promise<void> {
    if (isChecking) return;
    isChecking = true;
    try {
      await Promise.all([...apis.values()].map((api) => check(api)));
    } finally {
      isChecking = false;
    }
    if (!isClosed && apis.size > 0) cancelCheck ??= clock.after(RECHECK_MS, runCheck);
  }

  function runCheck(): void {
    cancelCheck = null;
    checkAll().catch((error: unknown) => {
      logger.error({ err: error }, 'failed to check aggregated API servers');
    });
  }

  async function check(api: RemoteApi): Promise<void> {
    const result = await condition(api);
    if (isClosed) return;
    try {
      setCondition(api.name, result);
    } catch (error) {
      // The object was deleted or changed concurrently: that change triggers the next check.
      if (!(error instanceof StatusError)) throw error;
    }
  }

  /** Returns whether an API is available, and why (upstream's remote AvailableConditionController). */
  async function condition(api: RemoteApi): Promise<{ status: string; reason: string; message: string }> {
    const { namespace, name, port } = api.service;
    const no = (reason: string, message: string) => ({ status: 'False', reason, message });
    const service = store.get('services', `${namespace}/${name}`)?.object;
    if (!service) return no('ServiceNotFound', `service/${name} in "${namespace}" is not present`);
    const isElsewhere = at(service, 'spec', 'type') === 'ExternalName';
    if (!isElsewhere && !listAt(service, 'spec', 'ports').some((one) => one['port'] === port)) {
      return no('ServicePortError', `service/${name} in "${namespace}" is not listening on port ${port}`);
    }
    const path = `/apis/${api.group}/${api.version}`;
    try {
      const list = await client.read(api, path, CHECK_USER, CHECK_MS);
      lists.set(api.name, isObject(list) ? listAt(list, 'resources') : []);
      return { status: 'True', reason: 'Passed', message: 'all checks passed' };
    } catch (error) {
      const message = messageOf(error);
      return /^no endpoints available/.test(message)
        ? no('MissingEndpoints', `endpointslices for service/${name} in "${namespace}" have no addresses`)
        : no(
            'FailedDiscoveryCheck',
            `failing or missing response from https://${name}.${namespace}.svc:${port}${path}: ${message}`,
          );
    }
  }

  function setCondition(
    name: string,
    { status, reason, message }: { status: string; reason: string; message: string },
  ) {
    const object = store.get(API_SERVICE_KIND.collection, `/${name}`)?.object;
    if (!object) return;
    const before = listAt(object, 'status', 'conditions').find(({ type }) => type === 'Available');
    const lastTransitionTime =
      before?.['status'] === status ? before['lastTransitionTime'] : timestamp(clock.now());
    const next = { type: 'Available', status, lastTransitionTime, reason, message };
    if (equal(before, next)) return;
    resources.update(
      API_SERVICE_KIND,
      '',
      name,
      (current: ApiObject) => ({ ...current, status: { conditions: [next] } }),
      { part: 'status' },
    );
  }

  async function passOn(context: RequestContext, api: RemoteApi, path: string): Promise<OutgoingResponse> {
    if (!api.isAvailable) {
      throw new StatusError(503, 'ServiceUnavailable', `the server of ${api.name} is not available`, {});
    }
    const { request } = context;
    const headers = request.upgrade ? upgradeHeaders(request.headers) : forwardedHeaders(request.headers);
    const unreachable = (error: unknown) =>
      new StatusError(
        503,
        'ServiceUnavailable',
        `error trying to reach the server of ${api.name}: ${messageOf(error)}`,
        {},
      );
    const hasBody = request.method !== 'GET' && request.method !== 'HEAD';
    const pass: Send<OutgoingResponse> = (through, onError) =>
      new Promise((resolve, reject) => {
        const outgoing = client.open(
          api,
          { method: request.method, path, headers, user: context.user },
          through,
        );
        context.signal.addEventListener('abort', () => outgoing.destroy());
        outgoing.on('error', (error) => reject(onError(outgoing, error)));
        outgoing.on('response', (response: IncomingMessage) => {
          const answered = Object.entries(response.headers).filter(([name]) => !isConnectionHeader(name));
          resolve({
            status: response.statusCode ?? 502,
            headers: Object.fromEntries(answered) as Record<string, string | readonly string[]>,
            body: response,
          });
        });
        outgoing.on('upgrade', (response: IncomingMessage, socket: Duplex, head: Buffer) => {
          if (!request.upgrade) return;
          resolve('upgraded');
          joinSockets(request.upgrade.socket, request.upgrade.head, response, socket, head);
        });
        if (!hasBody) outgoing.end();
        else {
          request
            .stream()
            .on('error', (error) => outgoing.destroy(error))
            .pipe(outgoing);
        }
      });
    try {
      if (request.upgrade) return await sendOnce(pass, 'own');
      return await (hasBody ? sendOnce(pass, 'kept') : sendTwice(pass));
    } catch (error) {
      throw unreachable(error);
    }
  }

  const changed = () => {
    if (isClosed) return;
    read();
    if (apis.size === 0) return;
    // Replaces a check that is scheduled for later.
    cancelCheck?.();
    cancelCheck = clock.after(SETTLE_MS, runCheck);
  };
  const ends = FOLLOWED.map((collection) =>
    store.listen(collection, () => {
      if (collection === API_SERVICE_KIND.collection || apis.size > 0) changed();
    }),
  );
  changed();

  return {
    async handle(context) {
      const { info, request } = context;
      const [, root, group = '', version = '', ...rest] = info.path.split('/');
      if (root === 'apis') {
        const api = apis.get(`${group}/${version}`);
        return api ? passOn(context, api, request.url) : null;
      }
      // The document of a group and version: /openapi/v3/apis/GROUP/VERSION.
      if (root !== 'openapi' || group !== 'v3' || version !== 'apis') return null;
      const api = apis.get(rest.join('/'));
      return api ? passOn(context, api, request.url) : null;
    },
    versions: () =>
      apiServices().flatMap((object) => {
        const api = remoteApi(object);
        const spec = isObject(object['spec']) ? object['spec'] : {};
        return api
          ? [
              {
                group: api.group,
                version: api.version,
                groupPriority: Number(spec['groupPriorityMinimum'] ?? 0),
                versionPriority: Number(spec['versionPriority'] ?? 0),
                isAvailable: api.isAvailable,
                resources: lists.get(api.name) ?? [],
              },
            ]
          : [];
      }),
    async openapiPaths() {
      const all = await Promise.all(
        [...apis.values()]
          .filter(({ isAvailable }) => isAvailable)
          .map(async (api) => {
            const path = `apis/${api.group}/${api.version}`;
            try {
              const index = await client.read(api, '/openapi/v3', CHECK_USER, CHECK_MS);
              const paths = isObject(index) && isObject(index['paths']) ? index['paths'] : {};
              return path in paths ? [[path, paths[path]] as const] : [];
            } catch (error) {
              logger.warn({ api: api.name, error: messageOf(error) }, 'failed to read the OpenAPI index');
              return [];
            }
          }),
      );
      return Object.fromEntries(all.flat());
    },
    async openapiDocument(path) {
      const api = apis.get(path.replace(/^apis\//, ''));
      if (!api) return null;
      try {
        const document = await client.read(api, `/openapi/v3/${path}`, CHECK_USER, CHECK_MS);
        if (isObject(document)) return document;
        throw new Error('the document is not an object');
      } catch (error) {
        logger.warn({ api: api.name, error: messageOf(error) }, 'failed to read the OpenAPI document');
        return null;
      }
    },
    close() {
      isClosed = true;
      cancelCheck?.();
      for (const end of ends) end();
      client.close();
    },
  };
}
