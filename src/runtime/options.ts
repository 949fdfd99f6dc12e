import type { Client } from '../kube/client.ts';
import type { Amounts } from '../kube/quota/amounts.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { LayerLimits } from './images/layer-limits.ts';
import type { RegistryCredentials } from './images/registry.ts';
import type { PodNetwork } from './pod-network.ts';
import type { Traffic } from './traffic-end.ts';

/** An image that comes with Fairlead: this machine's root file system with these mounts on top. */
export interface BuiltinImage {
  readonly mounts: readonly {
    readonly source: string;
    readonly destination: string;
    readonly readonly: boolean;
  }[];
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * Pulls an image into the store by other means than this process and its network. `here`: pulls it by them. Throws KubeletError
 * "ErrImagePull".
 */
export type PullElsewhere = (
  name: string,
  credentials: RegistryCredentials | null,
  here: () => Promise<void>,
) => Promise<void>;

/** PEM texts. Without a certificate (empty), connections fail until there is one. */
export interface ServerTls {
  readonly cert: string;
  readonly key: string;
  readonly clientCa: string;
}

export interface KubeletOptions {
  readonly client: Client;
  readonly nodeName: string;
  /** The Node's addresses, primary family first. */
  readonly nodeAddresses: readonly string[];
  /** The folder of everything that must survive the agent. */
  readonly stateDir: string;
  /** The parent of containers' control groups, a path in the cgroup file system. */
  readonly cgroupParent: string;
  /** How many pods the node reports to have room for. */
  readonly maxPods: number;
  /** The extended resources that the Node object offers to pods; absent: none. */
  readonly extendedResources?: {
    readonly current: () => Amounts;
    readonly onChange: (listener: () => void) => void;
    /** Reads the Node object again: the scheduler may have seen a change that this node has not. */
    readonly refresh: () => Promise<void>;
  };
  readonly network: PodNetwork;
  readonly clusterDns: readonly string[];
  /** Other nodes' name servers, for times when this node's does not answer; evaluated for each pod. */
  readonly fallbackDns?: readonly string[];
  readonly clusterDomain: string;
  /** The address of the API server for pods. */
  readonly apiService: { readonly host: string; readonly port: number };
  readonly builtinImages: Readonly<Record<string, BuiltinImage>>;
  readonly images: {
    /** The image store, which nodes on one machine may share. */
    readonly folder: string;
    /** Registries ("HOST:PORT") that are contacted over plain HTTP; registries on loopback always are. */
    readonly plainHttp: readonly string[];
    /** Bounds of an image's contents; absent: LAYER_LIMITS. */
    readonly limits?: Partial<LayerLimits>;
    /** Absent: images are pulled by this process, through its own network. */
    readonly pull?: PullElsewhere;
  };
  readonly server: ServerTls & {
    readonly port: number;
    /** Calls the listener with what changes later, for new connections; absent: nothing does. */
    readonly onChange?: (listener: (changed: Partial<ServerTls>) => void) => void;
  };
  /** Returns the traffic that Services send to these addresses of a pod; absent: unknown. */
  readonly trafficOf?: (addresses: readonly string[]) => Promise<Traffic>;
  readonly logger: Logger;
  /** Shown by /statusz and /flagz, as is `startedAt`, in the clock's milliseconds. */
  readonly version: string;
  readonly flags: Readonly<Record<string, string>>;
  readonly startedAt: number;
  readonly clock: Clock;
  readonly random: () => number;
  readonly signal: AbortSignal;
}
