import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { ApiPath, IncomingRequest, OutgoingResponse } from './api-request.ts';
import type { Kind } from './kind.ts';
import type { RequestMetrics } from './metrics.ts';
import type { ResourceStore } from './resource-store.ts';
import type { SchemaService, TableService } from './schema-service.ts';
import type { TokenIssuer } from './service-account-tokens.ts';
import type { Store } from './store.ts';

/** What the handling of requests stands on. */
export interface ApiHandlerOptions {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly kinds: readonly Kind[];
  readonly schema: SchemaService;
  readonly tables: TableService;
  readonly tokens: TokenIssuer;
  readonly metrics: RequestMetrics;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  /** Aborts when the server closes: watches end. */
  readonly closing: AbortSignal;
  readonly version: { readonly gitVersion: string; readonly major: string; readonly minor: string };
  /** Carries out requests that a node answers (logs, proxies); upgrades take another way. */
  readonly nodeRequest: (path: ApiPath, request: IncomingRequest) => Promise<OutgoingResponse>;
}
