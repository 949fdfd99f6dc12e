import type { Clock } from '../lib/clock.ts';
import type { HealthcheckMetrics } from '../lib/healthcheck-metrics.ts';
import type { Logger } from '../lib/log.ts';
import type { AdmissionPlugin } from './admission/plugin.ts';
import type { Aggregator } from './aggregation/aggregator.ts';
import type { Authenticator, Impersonator } from './authentication/authenticator.ts';
import type { Authorizer } from './authorization/authorizer.ts';
import type { ClusterDialer } from './cluster-dialer.ts';
import type { RequestMetrics } from './metrics.ts';
import type { NodeTunnel } from './node-tunnel.ts';
import type { SwaggerService } from './openapi/swagger-service.ts';
import type { PlainResponse } from './requests/request.ts';
import type { ResourceStore } from './resource-store.ts';
import type { ResourceRegistry } from './routes/resource-registry.ts';
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
