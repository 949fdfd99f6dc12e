import type { SocketAddress } from '../lib/address.ts';
import type { Frontend, NodeView, ServiceMap } from '../service/model.ts';

/** Objects of one kind, as the tool that lists them prints them. */
export interface ObjectSection {
  /** "map elements", "rules", "virtual servers", … */
  readonly kind: string;
  /** The command that lists them on the node. */
  readonly command: string;
  readonly lines: readonly string[];
  /** Whether other Services use the same objects: they are not part of the Service's size. */
  readonly isShared: boolean;
}

/** The number of objects that a packet is compared with; `least` and `most` differ where chance or order decides. */
export interface Lookups {
  readonly least: number;
  readonly most: number;
  readonly text: string;
}

/** One Service as one mode renders it. */
export interface Rendering {
  readonly sections: readonly ObjectSection[];
  readonly sizes: readonly { readonly what: string; readonly bytes: number }[];
  /** Where the destination is translated. */
  readonly translatedAt: string;
  /** For a packet of a pod that opens a connection to the Service. */
  readonly firstPacket: Lookups;
  readonly laterPackets: string;
  /** What cannot be known without running the mode. */
  readonly notes: readonly string[];
}

/** A Service on a node, as its modes render it. */
export interface RenderInput {
  readonly map: ServiceMap;
  /** The node as this mode sees it. */
  readonly node: NodeView;
  /** All frontends of the Service. */
  readonly frontends: readonly Frontend[];
  /** The address of a pool's listener (userspace mode); null: the kernel chooses its port when it is opened. */
  readonly listenerOf: (pool: string) => SocketAddress | null;
}

export const byFamily = (frontends: readonly Frontend[]) =>
  (['ipv4', 'ipv6'] as const).flatMap((family) => {
    const own = frontends.filter((one) => one.family === family);
    return own.length === 0 ? [] : [{ family, frontends: own }];
  });

/** Returns the frontend that most packets use: the one of the cluster IP. */
export const mainFrontend = (frontends: readonly Frontend[]): Frontend | undefined =>
  frontends.find(({ kind }) => kind === 'ClusterIP') ?? frontends[0];

/** Returns sections without those that have no lines. */
export const filled = (sections: readonly ObjectSection[]): ObjectSection[] =>
  sections.filter(({ lines }) => lines.length > 0);

/** Returns "1 map entry", "2 map entries". */
export function counted(kind: string, count: number): string {
  const one = kind.endsWith('ies') ? `${kind.slice(0, -3)}y` : kind.replace(/(?<=ss)es$|s$/, '');
  return `${count} ${count === 1 ? one : kind}`;
}
