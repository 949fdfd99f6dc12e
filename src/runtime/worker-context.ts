import type { Client } from '../kube/client.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { ObjectReader } from '../kube/shared-reads.ts';
import type { Pod } from '../kube/types.ts';
import type { GracePeriod } from './grace-period.ts';
import type { ImageSource } from './images/image-source.ts';
import type { NodeResources } from './node-resources.ts';
import type { RuntimePaths } from './oci-runtime.ts';
import type { KubeletOptions } from './options.ts';
import type { PodProcesses } from './pod-processes.ts';

/** State that the workers of a node share. */
export interface WorkerContext {
  readonly options: KubeletOptions;
  readonly client: Client;
  /** Reads what pods name: those that start together share requests. */
  readonly reader: ObjectReader;
  readonly paths: RuntimePaths;
  readonly processes: PodProcesses;
  readonly events: EventRecorder;
  readonly images: ImageSource;
  /** The node's resources for pods, as its Node object reports them. */
  readonly allocatable: Readonly<Record<string, string>>;
  /** The shares of the node's pods in its resources. */
  readonly resources: NodeResources;
  /** Writes a pod's status to the API server; of frequent calls, the latest. */
  readonly publish: (pod: Pod, status: NonNullable<Pod['status']>) => void;
  /** Removes the pod object after all parts of the pod have been removed from this node. */
  readonly finalize: (pod: Pod) => Promise<void>;
}

/** State that the containers of a pod share. */
export interface RunnerContext extends WorkerContext {
  readonly pod: () => Pod;
  /** Returns the address of the pod's ports. */
  readonly address: () => string;
  /** Called when the container has changed: the pod is processed again. */
  readonly changed: () => void;
  readonly grace: GracePeriod;
  /** Resolves when Services send no new connections to the pod; at once while it is not being deleted. */
  readonly quiet: () => Promise<void>;
}
