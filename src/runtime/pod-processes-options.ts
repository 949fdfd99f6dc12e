import type { Semaphore } from '../lib/semaphore.ts';
import type { ControlGroups } from './control-groups.ts';
import type { DeviceAccess } from './device-access.ts';
import type { RuntimePaths } from './oci-runtime.ts';
import type { KubeletOptions } from './options.ts';

export interface PodProcessesOptions {
  readonly options: Pick<
    KubeletOptions,
    'cgroupParent' | 'stateDir' | 'clock' | 'nodeName' | 'clusterDomain'
  >;
  readonly paths: RuntimePaths;
  readonly groups: ControlGroups | null;
  /** Capabilities that this machine can grant to containers. */
  readonly boundingSet: readonly string[];
  /** Null: nothing keeps containers from devices. */
  readonly devices: DeviceAccess | null;
  /** Limits the number of containers that start concurrently. */
  readonly starts: Semaphore;
}
