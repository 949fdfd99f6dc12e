import type { KubeletOptions } from '../options.ts';
import type { ClientAuthorization } from './client-authorization.ts';
import type { UsageReader } from './resource-usage.ts';
import type { ServedPods } from './served-pod.ts';

export type KubeletServerOptions = Pick<
  KubeletOptions,
  | 'client'
  | 'nodeName'
  | 'nodeAddresses'
  | 'stateDir'
  | 'clusterDns'
  | 'clusterDomain'
  | 'cgroupParent'
  | 'logger'
  | 'clock'
  | 'signal'
  | 'server'
  | 'version'
  | 'flags'
  | 'startedAt'
>;

/** The handlers of a node's requests. */
export interface RequestContext {
  readonly options: KubeletServerOptions;
  readonly pods: ServedPods;
  readonly usage: UsageReader;
  readonly authorization: ClientAuthorization;
}
