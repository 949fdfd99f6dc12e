import { formatAddress, type IPFamily, type SocketAddress } from '../../lib/address.ts';
import { addressWords } from '../../nft/encoding.ts';
import type { Statement } from '../../nft/rule.ts';
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

/** The action of the rules for a packet to a frontend: redirect it to a listener, reject or drop it. */
export type Target = SocketAddress | 'reject' | 'drop';

/** A frontend with its listeners. */
export interface ProgrammedFrontend {
  readonly frontend: Frontend;
  readonly targets: Readonly<Record<SourceClass, Target>>;
  /** The distinct ids of the pools of all targets. */
  readonly pools: readonly string[];
}

/** A listener as seen by the rules. */
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
    readonly gate: Statement | null;
  },
): TableSpec {
  const groups = new Map<string, ElementGroup>([[NODE_OWNER, nodeGroup(node, family)]]);
  noteAddresses(groups, CLUSTER_IPS, family, contents.clusterIPs);
  for (const listener of contents.listeners) {
    if (listener.family === family) groups.set(listenerOwner(listener), renderListener(listener));
  }
  for (const { key, group } of contents.frontends) groups.set(key, group);
  return { family, name: TABLE, ...createLayout(family, node, contents.gate), groups };
}

/** Renders all elements of a table for a frontend. Throws FairleadError EINVAL for an invalid address. */
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

/**
 * Renders the address of a listener, to which only translated packets may be sent; the comment is its pool.
 */
export function renderListener({ pool, family, protocol, at }: ProgrammedListener): ElementGroup {
  const key = frontendKey({ address: at.ip, port: at.port, protocol, family });
  return group([elements(LISTENERS, key, { comment: pool })]);
}

export const listenerOwner = ({ pool }: Pick<ProgrammedListener, 'pool'>): string => `listener ${pool}`;

/** Returns the address in a listener's element. */
export function readListenerKey(key: Uint8Array, family: IPFamily): SocketAddress {
  const length = addressWords(family) * 4;
  return {
    ip: formatAddress(key.subarray(0, length)),
    port: ((key[length + 4] ?? 0) << 8) | (key[length + 5] ?? 0),
  };
}
