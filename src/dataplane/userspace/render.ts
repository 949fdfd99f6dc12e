import { formatAddress, type IPFamily, type SocketAddress } from '../../lib/address.ts';
import { addressWords } from '../../nft/encoding.ts';
import { type ElementGroup, elements, group, type TableSpec } from '../../nft/spec.ts';
import { type Frontend, type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import {
  CLUSTER_IPS,
  NODE_OWNER,
  nodeGroup,
  noteAddresses,
  sourceRangeElements,
} from '../rules/address-elements.ts';
import { addressAndPort, commentOf, frontendKey, keyingOf } from '../rules/frontend-keys.ts';
import { createLayout, LISTENERS, listenerMap, refusalMap, TABLE } from './layout.ts';

/** What the rules do with a packet to a frontend: redirect it to a listener, or refuse it. */
export type Target = SocketAddress | 'reject' | 'drop';

/** A frontend with the listeners that it was given. */
export interface ProgrammedFrontend {
  readonly frontend: Frontend;
  readonly targets: Readonly<Record<SourceClass, Target>>;
  /** Ids of the pools whose listeners the targets are, each once. */
  readonly pools: readonly string[];
}

/** A listener as the rules know it. */
export interface ProgrammedListener {
  readonly pool: string;
  readonly family: IPFamily;
  readonly protocol: 'TCP' | 'UDP';
  readonly at: SocketAddress;
}

/** Renders one family's table. */
export function renderTable(
  family: IPFamily,
  node: NodeView,
  contents: {
    readonly frontends: Iterable<{ readonly key: string; readonly group: ElementGroup }>;
    readonly listeners: Iterable<ProgrammedListener>;
    readonly clusterIPs: Iterable<string>;
  },
): TableSpec {
  const groups = new Map<string, ElementGroup>([[NODE_OWNER, nodeGroup(node, family)]]);
  noteAddresses(groups, CLUSTER_IPS, family, contents.clusterIPs);
  for (const listener of contents.listeners) {
    if (listener.family === family) groups.set(listenerOwner(listener), renderListener(listener));
  }
  for (const { key, group } of contents.frontends) groups.set(key, group);
  return { family, name: TABLE, ...createLayout(family, node), groups };
}

/** Renders everything that a table holds for a frontend. Throws FairleadError EINVAL for a bad address. */
export function renderFrontend({ frontend, targets }: ProgrammedFrontend): ElementGroup {
  const { family } = frontend;
  const keying = keyingOf(frontend);
  const key = frontendKey(frontend);
  const comment = commentOf(frontend);
  return group([
    ...SOURCE_CLASSES.map((source) => {
      const target = targets[source];
      if (typeof target === 'string') {
        const verdict = target === 'drop' ? target : { goto: 'reject' };
        return elements(refusalMap(keying, source), key, { verdict, comment });
      }
      const data = addressAndPort(target.ip, target.port, family);
      return elements(listenerMap(keying, source), Uint32Array.from([...key, ...data]), { comment });
    }),
    ...sourceRangeElements(frontend, key, comment),
  ]);
}

/** A listener's own address, which only translated packets may be sent to; the comment is the pool that it serves. */
export function renderListener({ pool, family, protocol, at }: ProgrammedListener): ElementGroup {
  const key = frontendKey({ address: at.ip, port: at.port, protocol, family });
  return group([elements(LISTENERS, key, { comment: pool })]);
}

export const listenerOwner = ({ pool }: Pick<ProgrammedListener, 'pool'>): string => `listener ${pool}`;

/** Where a listener's element says that it listens. */
export function readListenerKey(key: Uint8Array, family: IPFamily): SocketAddress {
  const length = addressWords(family) * 4;
  return {
    ip: formatAddress(key.subarray(0, length)),
    port: ((key[length + 4] ?? 0) << 8) | (key[length + 5] ?? 0),
  };
}
