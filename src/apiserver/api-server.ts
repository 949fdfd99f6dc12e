import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { isProxyable, type MayDial } from '../kube/dial-check.ts';
import type { Transport } from '../kube/transport.ts';
import type { Clock } from '../lib/clock.ts';
import type { ConnectionLimits } from '../lib/connection-table.ts';
import { createHealthcheckMetrics } from '../lib/healthcheck-metrics.ts';
import type { Logger } from '../lib/log.ts';
import { createExpressionPrograms, expressionErrors } from './admission/expression-check.ts';
import { createServiceResolver } from './admission/webhooks/service-resolver.ts';
import { createWebhookClient } from './admission/webhooks/webhook-client.ts';
import { createAggregator } from './aggregation/aggregator.ts';
import { registerOwnApis } from './aggregation/auto-registration.ts';
import { createFrontProxy, publishFrontProxy } from './aggregation/front-proxy.ts';
import { createRemoteClient } from './aggregation/remote-client.ts';
import type { SharedReads } from './authorization/shared-reads.ts';
import { installBuiltins } from './builtins.ts';
import { ClusterAddresses, DEFAULT_SERVICE_CIDR, IP_ADDRESSES, SERVICE_CIDRS } from './cluster-addresses.ts';
import { createClusterDialer } from './cluster-dialer.ts';
import { createCustomSchemas } from './custom-resources/custom-schemas.ts';
import { serveDefinitions } from './custom-resources/definitions.ts';
import { createRuleEvaluator } from './custom-resources/rules.ts';
import { expireEvents } from './event-expiry.ts';
import { type Listener, serveHttps, type TlsMaterial } from './http-server.ts';
import type { Kind } from './kind.ts';
import { KINDS } from './kinds.ts';
import { expireLists } from './list-expiry.ts';
import { createRequestMetrics } from './metrics.ts';
import { createNodeTunnel } from './node-tunnel.ts';
import { createSwaggerService } from './openapi/swagger-service.ts';
import { createApiHandler } from './requests/api-handler.ts';
import { LongBody } from './requests/long-body.ts';
import type { IncomingRequest } from './requests/request.ts';
import { ResourceStore } from './resource-store.ts';
import { builtinResources } from './routes/builtin-resources.ts';
import { createResourceRegistry } from './routes/resource-registry.ts';
import type { SchemaService, TableService } from './schema-service.ts';
import { type AuthorizationMode, createSecurity } from './security.ts';
import { createTokenIssuer } from './service-account-tokens.ts';
import { ServiceAllocator } from './service-allocator.ts';
import type { FurtherPaths, Security, ServerParts } from './services.ts';
import { Store } from './store.ts';
import { createUnreadBudget } from './watch/unread-budget.ts';
import { createWatchHub } from './watch/watch-hub.ts';

export interface ApiServerOptions {
  /** Path of the database, or ":memory:". */
  readonly dataFile: string;
  /** The Services' networks, primary family first. */
  readonly serviceCidrs: readonly string[];
  /** The provisioner of the default StorageClass, which is created if the cluster has none. */
  readonly storageProvisioner?: string;
  /** Controller of the default IngressClass, which is created if there is no class. Absent: none is created. */
  readonly ingressController?: string;
  /** What agents of all nodes may read. Absent: nothing but what their pods refer to. */
  readonly sharedReads?: SharedReads;
  readonly nodePorts: { readonly first: number; readonly last: number };
  /**
   * Addresses at which pods reach this server, behind the Service default/kubernetes. Empty: this Service is not
   * created.
   */
  readonly advertise: { readonly addresses: readonly string[]; readonly port: number };
  readonly tls: TlsMaterial;
  /** The server's certificate for connections to nodes, and the nodes' authority. PEM. */
  readonly nodeTls: { readonly cert: string; readonly key: string; readonly ca: string };
  /** EC P-256 private key that signs service-account tokens. PEM. */
  readonly tokenKey: string;
  /** New pods receive their service account's token as files. Default: no. */
  readonly mountTokens?: boolean;
  readonly schema: SchemaService;
  readonly tables: TableService;
  /** "v1.36.0+fairlead" */
  readonly version: string;
  /** Default: RBAC, with the Node authorizer before it. */
  readonly authorization?: AuthorizationMode;
  /** The issuer of service-account tokens: a URL at which pods reach this server. */
  readonly tokenIssuer?: string;
  /** Replaces parts of the server's security, for tests. */
  readonly security?: (parts: ServerParts, defaults: Security) => Partial<Security>;
  /** To which addresses of pods, endpoints and nodes it may connect; default: `isProxyable`. */
  readonly mayDial?: MayDial;
  readonly connectionLimits?: Partial<ConnectionLimits>;
  /** Default: none. */
  readonly furtherPaths?: FurtherPaths;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

export interface ApiServer {
  /** Transport for requests of this process itself: full rights, no network. */
  readonly transport: Transport;
  /** Serves over HTTPS; resolves to each listener's port when all of them listen. */
  listen(listeners: readonly Listener[]): Promise<readonly number[]>;
  close(): Promise<void>;
}

/** After a start, for which a cluster waits. */
const RESERVE_AFTER_MS = 2000;
/** Bytes that may wait for the clients of all watches. */
const MAX_UNREAD_BYTES = 256 * 1024 * 1024;

/** Opens the store and prepares to serve; does not listen yet. */
export function createApiServer(options: ApiServerOptions): ApiServer {
  const { clock, random, logger, mayDial = isProxyable } = options;
  const issuer = options.tokenIssuer ?? 'https://kubernetes.default.svc.cluster.local';
  const schema = createCustomSchemas(options.schema);
  const programs = createExpressionPrograms();
  const { store, addresses, resources } = openResources(options, schema, programs);
  const tokens = createTokenIssuer(
    options.tokenKey,
    issuer,
    clock,
    randomUUID,
    (collection, key) => store.get(collection, key)?.object,
  );
  const nodes = createNodeTunnel({ store, mayDial, tls: options.nodeTls });
  const closing = new AbortController();
  const [, major = '1', minor = '36'] = /^v([0-9]+)\.([0-9]+)/.exec(options.version) ?? [];
  const registry = createResourceRegistry(builtinResources(KINDS));
  const parts: ServerParts = { store, resources, registry, schema, tokens, clock, random, logger };
  const defaults = createSecurity(parts, {
    authorization: options.authorization ?? 'RBAC',
    mountTokens: options.mountTokens ?? false,
    authority: options.nodeTls.ca,
    ...(options.sharedReads === undefined ? {} : { sharedReads: options.sharedReads }),
    programs,
    mayDial,
  });
  const security = { ...defaults, ...options.security?.(parts, defaults) };
  const resolveService = createServiceResolver(storedObjects(store), random);
  const conversionWebhooks = createWebhookClient(resolveService, mayDial);
  const frontProxy = createFrontProxy(new Date(clock.now()));
  const aggregator = createAggregator({
    store,
    resources,
    client: createRemoteClient(resolveService, mayDial, frontProxy),
    clock,
    logger,
  });
  const handle = createApiHandler({
    ...parts,
    ...security,
    tables: options.tables,
    metrics: createRequestMetrics(),
    healthchecks: createHealthcheckMetrics(),
    closing: closing.signal,
    version: { gitVersion: options.version, major, minor },
    startedAt: clock.now(),
    flags: flagsOf(options, issuer),
    nodes,
    aggregator,
    dialer: createClusterDialer({ store, mayDial, tls: options.nodeTls }),
    hub: createWatchHub(store, clock),
    unread: createUnreadBudget(MAX_UNREAD_BYTES),
    swagger: createSwaggerService(),
    furtherPaths: options.furtherPaths ?? (() => null),
  });
  store.batch(() => installBuiltins(resources, store, KINDS, options));
  addresses.repair();
  publishFrontProxy(store, resources, storedKind('configmaps'), {
    clientAuthority: options.tls.clientCa,
    frontProxy,
  });
  const endRepairs = repairAddresses(addresses, parts, options, closing.signal);
  const definitions = serveDefinitions({
    store,
    resources,
    registry,
    schemas: schema,
    evaluateRule: createRuleEvaluator(),
    webhooks: conversionWebhooks,
    clock,
    logger,
  });
  defaults.start();
  const ends = [
    endRepairs,
    expireEvents({ store, clock, logger }),
    expireLists({ store, clock }),
    () => definitions.close(),
    () => conversionWebhooks.close(),
    registerOwnApis({ store, resources, registry, clock, logger }),
    () => aggregator.close(),
  ];
  const servers: { close(): Promise<void> }[] = [];
  return {
    transport: internalTransport(handle),
    async listen(listeners) {
      const server = await serveHttps(listeners, {
        tls: options.tls,
        authenticators: security.authenticators,
        clock,
        logger,
        handle,
        ...(options.connectionLimits ? { limits: options.connectionLimits } : {}),
      });
      servers.push(server);
      return server.ports;
    },
    async close() {
      closing.abort();
      for (const end of ends) end();
      await Promise.all(servers.map((server) => server.close()));
      nodes.close();
      defaults.close();
      store.close();
    },
  };
}

/** Opens the store, with the allocation of the addresses and node ports of Services. */
function openResources(
  { dataFile, serviceCidrs, nodePorts, clock, random }: ApiServerOptions,
  schema: ServerParts['schema'],
  programs: ReturnType<typeof createExpressionPrograms>,
) {
  const store = new Store(dataFile, (reserve) => clock.after(RESERVE_AFTER_MS, reserve));
  const addressKind = storedKind(IP_ADDRESSES);
  const addresses = new ClusterAddresses({
    store,
    create: (object) => resources.create(addressKind, '', object),
    remove: (name) => resources.delete(addressKind, '', name, {}),
    random,
  });
  const allocator = new ServiceAllocator({ store, addresses, cidrs: serviceCidrs, nodePorts, random });
  const resources: ResourceStore = new ResourceStore(store, allocator, clock, {
    randomUuid: randomUUID,
    complete: (object) => schema.complete(object),
    expressionErrors: (kind, object) => expressionErrors(programs, kind, object),
  });
  return { store, addresses, resources };
}

/** Reads objects for the choice of a Service's endpoint. */
const storedObjects = (store: Store): Parameters<typeof createServiceResolver>[0] => ({
  get: (collection, key) => store.get(collection, key)?.object,
  list: (collection, namespace) => store.list(collection, namespace).map(({ object }) => object),
});

/** Repairs the objects of cluster addresses, and the default ServiceCIDR, when they change. Returns its end. */
function repairAddresses(
  addresses: ClusterAddresses,
  { store, resources, clock, logger }: ServerParts,
  options: ApiServerOptions,
  closing: AbortSignal,
): () => void {
  const background = (task: () => void) => {
    clock.after(0, () => {
      if (closing.aborted) return;
      try {
        task();
      } catch (error) {
        logger.error({ err: error }, 'failed to repair the objects of cluster addresses');
      }
    });
  };
  const endAddresses = addresses.follow(background);
  const endServiceCidr = store.listen(SERVICE_CIDRS, ({ last, after }) => {
    if (after !== null || last.object.metadata.name !== DEFAULT_SERVICE_CIDR) return;
    background(() => installBuiltins(resources, store, KINDS, options));
  });
  return () => {
    endAddresses();
    endServiceCidr();
  };
}

/** Returns the kind whose objects are stored in a collection. Throws Error if there is none. */
function storedKind(collection: string): Kind {
  const found = KINDS.find((kind) => kind.collection === collection && !kind.view);
  if (!found) throw new Error(`no kind is stored in ${collection}`);
  return found;
}

const bytesOf = (content: string | Buffer | LongBody): Buffer =>
  content instanceof LongBody ? content.whole() : Buffer.from(content);

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Returns the settings of a server by the names of kube-apiserver's flags, written as its /flagz writes them. */
function flagsOf(options: ApiServerOptions, issuer: string): Record<string, string> {
  const { nodePorts, advertise } = options;
  return {
    'advertise-address': advertise.addresses[0] ?? '',
    'allow-privileged': 'true',
    'authorization-mode': `[${options.authorization ?? 'Node,RBAC'}]`,
    // There are no profiles of Go at /debug/pprof.
    profiling: 'false',
    'secure-port': String(advertise.port),
    'service-account-issuer': `[${issuer}]`,
    'service-cluster-ip-range': options.serviceCidrs.join(','),
    'service-node-port-range': `${nodePorts.first}-${nodePorts.last}`,
  };
}

/** Returns the transport of this process's own requests: full rights, no network. */
function internalTransport(handle: ReturnType<typeof createApiHandler>): Transport {
  return async (request) => {
    const body = request.body === undefined ? Buffer.alloc(0) : Buffer.from(request.body);
    const incoming: IncomingRequest = {
      method: request.method,
      url: request.path,
      headers: request.headers,
      body: async () => body,
      stream: () => Readable.from([body]),
      user: { name: 'system:controller', groups: ['system:masters', 'system:authenticated'] },
      internal: true,
      signal: request.signal ?? new AbortController().signal,
      upgrade: null,
    };
    const response = await handle(incoming);
    if (response === 'upgraded') throw new Error('a request within the process cannot change its protocol');
    const headers = Object.fromEntries(
      Object.entries(response.headers).map(([name, value]) => [
        name,
        typeof value === 'string' ? value : value.join(', '),
      ]),
    );
    const content = response.body;
    return {
      status: response.status,
      headers,
      body: content instanceof Readable ? content : once(bytesOf(content)),
    };
  };
}
