import { messageOf } from '../../lib/errors.ts';
import { isObject, type JsonObject } from '../object.ts';
import type { OutgoingResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { AggregatorOptions } from './aggregator-options.ts';
import { API_SERVICE_KIND, type RemoteApi, remoteApi } from './api-service.ts';
import { CHECK_MS, CHECK_USER, createAvailability } from './availability.ts';
import { forwardTo } from './forwarded-request.ts';

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

const RECHECK_MS = 30_000;
/** Changes come in bursts; the next check starts this long after the first of them. */
const SETTLE_MS = 50;
const FOLLOWED = [API_SERVICE_KIND.collection, 'services', 'endpointslices.discovery.k8s.io'];

export function createAggregator(options: AggregatorOptions): Aggregator {
  const { store, client, clock, logger } = options;
  const availability = createAvailability(options);
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
      await Promise.all([...apis.values()].map((api) => availability.check(api)));
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
        return api ? forwardTo(client, context, api, request.url) : null;
      }
      // The document of a group and version: /openapi/v3/apis/GROUP/VERSION.
      if (root !== 'openapi' || group !== 'v3' || version !== 'apis') return null;
      const api = apis.get(rest.join('/'));
      return api ? forwardTo(client, context, api, request.url) : null;
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
                resources: availability.resourcesOf(api.name),
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
      availability.close();
      cancelCheck?.();
      for (const end of ends) end();
      client.close();
    },
  };
}
