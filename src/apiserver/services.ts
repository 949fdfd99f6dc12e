import type { Clock } from '../lib/clock.ts';
import type { HealthcheckMetrics } from '../lib/healthcheck-metrics.ts';
import type { Logger } from '../lib/log.ts';
import type { AdmissionPlugin } from './admission/plugin.ts';
import type { Aggregator } from './aggregation/aggregator.ts';
import type { Authenticator, Impersonator } from './authentication/authenticator.ts';
import type { Authorizer } from './authorization/authorizer.ts';
import type { ClusterDialer } from './cluster-dialer.ts';
import type { Kind } from './kind.ts';
import type { RequestMetrics } from './metrics.ts';
import type { NodeTunnel } from './node-tunnel.ts';
import type { SwaggerService } from './openapi/swagger-service.ts';
import type { OutgoingResponse, PlainResponse } from './requests/request.ts';
import type { ObjectRequestContext } from './requests/request-context.ts';
import type { ResourceStore } from './resource-store.ts';
import type { GroupVersionKind, ResourceVerb } from './routes/resource-verb.ts';
import type { SchemaService, TableService } from './schema-service.ts';
import type { TokenIssuer } from './service-account-tokens.ts';
import type { Store } from './store.ts';
import type { UnreadBudget } from './watch/unread-budget.ts';
import type { WatchHub } from './watch/watch-hub.ts';

/** The inputs of the security modules. */
export interface ServerParts {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly registry: ResourceRegistry;
  readonly schema: SchemaService;
  readonly tokens: TokenIssuer;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
}

/** Authentication, impersonation, authorization and admission. */
export interface Security {
  /** Called in order; see authentication/authenticate.ts. */
  readonly authenticators: readonly Authenticator[];
  /** Null: requests with impersonation are refused. */
  readonly impersonator: Impersonator | null;
  readonly authorizer: Authorizer;
  /** In the order of execution. */
  readonly admission: readonly AdmissionPlugin[];
}

/**
 * Serves paths outside the Kubernetes API for the program that contains the server, after authorization as non-resource
 * URLs. Returns null for all other paths.
 */
export type FurtherPaths = (request: {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: URLSearchParams;
  body(): Promise<Buffer>;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}) => Promise<PlainResponse> | null;

/** The services that request handlers use. */
export interface ApiServices extends ServerParts, Security {
  readonly tables: TableService;
  readonly metrics: RequestMetrics;
  readonly healthchecks: HealthcheckMetrics;
  /** Aborts when the server closes, to end watches. */
  readonly closing: AbortSignal;
  /** In the clock's milliseconds. */
  readonly startedAt: number;
  /** Its settings, by the names of kube-apiserver's flags. */
  readonly flags: Readonly<Record<string, string>>;
  readonly version: { readonly gitVersion: string; readonly major: string; readonly minor: string };
  readonly nodes: NodeTunnel;
  readonly aggregator: Aggregator;
  readonly dialer: ClusterDialer;
  readonly hub: WatchHub;
  readonly unread: UnreadBudget;
  readonly swagger: SwaggerService;
  readonly furtherPaths: FurtherPaths;
}

/** A request for a resource of the route table. */
export interface ResourceContext extends ObjectRequestContext {
  readonly resource: Resource;
  readonly kind: Kind;
}

export type ResourceHandler = (
  context: ResourceContext,
  services: ApiServices,
) => OutgoingResponse | Promise<OutgoingResponse>;

export type Handlers = { readonly [Verb in ResourceVerb]?: ResourceHandler };

/** An endpoint below an object: pods/log, deployments/scale. */
export interface Subresource {
  readonly name: string;
  /** The kind of its objects; null: that of the resource. */
  readonly kind: GroupVersionKind | null;
  readonly handlers: Handlers;
  /** Handles requests of every method, streams and upgrades (exec, proxy); discovery lists `connectVerbs`. */
  readonly connect?: ResourceHandler;
  readonly connectVerbs?: readonly ResourceVerb[];
}

/** An entry of the route table: one resource of one group-version. */
export interface Resource {
  readonly kind: Kind;
  readonly handlers: Handlers;
  readonly subresources: ReadonlyMap<string, Subresource>;
  /** Included in the kind's storageVersionHash; false for resources that are not stored (reviews). */
  readonly stored: boolean;
}

/** A group-version of the route table; `resources` in the order of addition. */
export interface GroupVersion {
  readonly group: string;
  readonly version: string;
  readonly resources: readonly Resource[];
}

/**
 * The route table: resources by group, version and name. Resources are added and removed while the server runs (custom
 * resources, aggregated APIs); discovery and OpenAPI read it again after each change.
 */
export interface ResourceRegistry {
  /** Counts changes: output rendered from the table is valid for one revision. */
  readonly revision: number;
  find(group: string, version: string, plural: string): Resource | undefined;
  all(): readonly Resource[];
  /** Returns versions by group, sorted by client preference within each group. */
  groupVersions(): readonly GroupVersion[];
  /** Adds a resource, or replaces the existing one of the same group, version and name. */
  add(resource: Resource): void;
  remove(group: string, version: string, plural: string): void;
  /** Calls the listener after every change. Returns a function that ends it. */
  onChange(listener: () => void): () => void;
  /** Returns a signal that aborts when the resource is removed, to end its watches. */
  lifetime(resource: Resource): AbortSignal;
}
