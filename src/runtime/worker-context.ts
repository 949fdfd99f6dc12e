import type { Client } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { Pod } from '../kube/types.ts';
import type { Semaphore } from '../lib/semaphore.ts';
import type { ControlGroups } from './control-groups.ts';
import type { ImageSource } from './images/image-source.ts';
import type { RuntimePaths } from './oci-runtime.ts';
import type { KubeletOptions } from './options.ts';

/** What the workers of a node share. */
export interface WorkerContext {
  readonly options: KubeletOptions;
  readonly client: Client;
  readonly paths: RuntimePaths;
  readonly groups: ControlGroups | null;
  /** Capabilities that this machine can give to containers. */
  readonly boundingSet: readonly string[];
  readonly events: EventRecorder;
  readonly images: ImageSource;
  /** The node's resources for pods, as its Node object reports them. */
  readonly allocatable: Readonly<Record<string, string>>;
  /** Limits how many containers start at the same time. */
  readonly starts: Semaphore;
  /** Writes a pod's status to the API server, the latest one when called often. */
  readonly publish: (pod: Pod, status: NonNullable<Pod['status']>) => void;
  /** Removes the pod object once nothing of it is left here. */
  readonly finalize: (pod: Pod) => Promise<void>;
}

/** What the containers of a pod share. */
export interface RunnerContext extends WorkerContext {
  readonly pod: () => Pod;
  /** The address that the pod's ports are reached at. */
  readonly address: () => string;
  /** The container has changed: the pod is to be looked at again. */
  readonly changed: () => void;
  /** When the pod's time is over, in the clock's milliseconds. */
  readonly deadline: () => number;
}
