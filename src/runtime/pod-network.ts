/** A port of the node that leads to a pod's. */
export interface PodHostPort {
  /** The node's address that it is for; empty: all. */
  readonly hostIP: string;
  readonly protocol: 'TCP' | 'UDP' | 'SCTP';
  readonly hostPort: number;
  readonly containerPort: number;
}

/** What the runtime needs of a node's pod network; `src/network` provides it. */
export interface PodNetwork {
  /** Gives a sandbox its device and addresses, IPv4 first on dual-stack nodes; the same ones when called again.
   * Throws "NodePorts" where another pod has a port of the node that this one asks for. */
  attach(
    pod: {
      readonly uid: string;
      readonly namespace: string;
      readonly name: string;
      /** Ports of the node that are to lead to the pod. */
      readonly hostPorts?: readonly PodHostPort[];
    },
    netns: { readonly pid: number },
  ): Promise<{ ips: string[] }>;
  detach(uid: string): Promise<void>;
  addresses(uid: string): string[] | null;
  /** Frees what belongs to no pod of `keep`; returns the uids it freed. */
  collect(keep: ReadonlySet<string>): Promise<string[]>;
}
