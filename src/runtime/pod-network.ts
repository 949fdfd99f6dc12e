/** A host port of a pod. */
export interface PodHostPort {
  /** The node's address; empty: all addresses. */
  readonly hostIP: string;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
  readonly hostPort: number;
  readonly containerPort: number;
}

/** The operations of a node's pod network that the runtime needs; implemented by `src/network`. */
export interface PodNetwork {
  /**
   * Creates a sandbox's device and addresses, IPv4 first on dual-stack nodes; idempotent. Throws "NodePorts" if another
   * pod uses one of its host ports.
   */
  attach(
    pod: {
      readonly uid: string;
      readonly namespace: string;
      readonly name: string;
      /** Host ports of the pod. */
      readonly hostPorts?: readonly PodHostPort[];
    },
    netns: { readonly pid: number },
  ): Promise<{ ips: string[] }>;
  detach(uid: string): Promise<void>;
  addresses(uid: string): string[] | null;
  /** Detaches all pods except those in `keep`; returns their uids. */
  collect(keep: ReadonlySet<string>): Promise<string[]>;
}
