import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { AdmissionPlugin } from './admission/plugin.ts';
import type { Aggregator } from './aggregation/aggregator.ts';
import type { Authenticator, Impersonator } from './authentication/authenticator.ts';
import type { Authorizer } from './authorization/authorizer.ts';
import type { ClusterDialer } from './cluster-dialer.ts';
import type { RequestMetrics } from './metrics.ts';
import type { NodeTunnel } from './node-tunnel.ts';
import type { SwaggerService } from './openapi/swagger-service.ts';
import type { ResourceStore } from './resource-store.ts';
import type { ResourceRegistry } from './routes/resource-registry.ts';
import type { SchemaService, TableService } from './schema-service.ts';
import type { TokenIssuer } from './service-account-tokens.ts';
import type { Store } from './store.ts';
import type { WatchHub } from './watch/watch-hub.ts';

/** What the security modules are made from. */
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

/** Who may do what, and what is changed or refused on the way in. */
export interface Security {
  /** Asked in their order; see authentication/authenticate.ts. */
  readonly authenticators: readonly Authenticator[];
  /** Null: requests that ask for impersonation are refused. */
  readonly impersonator: Impersonator | null;
  readonly authorizer: Authorizer;
  /** In the order in which they run. */
  readonly admission: readonly AdmissionPlugin[];
}

/** What the handlers of requests stand on. */
export interface ApiServices extends ServerParts, Security {
  readonly tables: TableService;
  readonly metrics: RequestMetrics;
  /** Aborts when the server closes: watches end. */
  readonly closing: AbortSignal;
  readonly version: { readonly gitVersion: string; readonly major: string; readonly minor: string };
  readonly nodes: NodeTunnel;
  readonly aggregator: Aggregator;
  readonly dialer: ClusterDialer;
  readonly hub: WatchHub;
  readonly swagger: SwaggerService;
}
