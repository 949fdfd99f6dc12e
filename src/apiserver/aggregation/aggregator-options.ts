import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/log.ts';
import type { ResourceStore } from '../resource-store.ts';
import type { Store } from '../store.ts';
import type { RemoteClient } from './remote-client.ts';

export interface AggregatorOptions {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly client: RemoteClient;
  readonly clock: Clock;
  readonly logger: Logger;
}
