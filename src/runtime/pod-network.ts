/** What the runtime needs of a node's pod network; `src/network` provides it. */
export interface PodNetwork {
  /** Gives a sandbox its device and addresses, IPv4 first on dual-stack nodes; the same ones when called again. */
  attach(
    pod: { readonly uid: string; readonly namespace: string; readonly name: string },
    netns: { readonly pid: number },
  ): Promise<{ ips: string[] }>;
  detach(uid: string): Promise<void>;
  addresses(uid: string): string[] | null;
  /** Frees what belongs to no pod of `keep`; returns the uids it freed. */
  collect(keep: ReadonlySet<string>): Promise<string[]>;
}
