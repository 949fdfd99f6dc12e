import type { Element } from '../../kernel/nftables/batch.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { formatAddress, type IPFamily } from '../../lib/address.ts';
import { addressWords, be16Port, hexOfWords, wordsOf, wordsOfAddress } from '../../nft/encoding.ts';
import { mergedRanges, outermost, successor } from '../../nft/ranges.ts';
import { type Frontend, type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import type { Keying } from '../nf-matches.ts';
import { LISTENERS, listenerMap, refusalMap } from './layout.ts';

/** Where a listener listens. */
export interface ListenAddress {
  readonly address: string;
  readonly port: number;
}

/** What becomes of a packet to a frontend: a listener takes it, or nobody. */
export type Target = ListenAddress | 'reject' | 'drop';

/** A frontend as the kernel has it. */
export interface ProgrammedFrontend {
  readonly frontend: Frontend;
  readonly targets: Readonly<Record<SourceClass, Target>>;
  /** Ids of the pools whose listeners the targets are, each once. */
  readonly pools: readonly string[];
}

/** A set's element. Two of the same `id` are the same element; with the same `value` too, they are equal. */
export interface SetElement {
  readonly set: string;
  readonly element: Element;
  readonly id: string;
  /** Data (hex), verdict, "start" or "end" of an interval, or empty. */
  readonly value: string;
}

const keyingOf = (frontend: Frontend): Keying => (frontend.address === null ? 'port' : 'address');

/** "namespace/name:port", as `nft list` shows it beside a frontend's elements. */
export function commentOf({ owner }: Frontend): string {
  return `${owner.namespace}/${owner.name}${owner.portName === '' ? '' : `:${owner.portName}`}`;
}

/** Everything that the kernel is told of a frontend. Throws on an address that is none of its family. */
export function frontendElements({ frontend, targets }: ProgrammedFrontend): SetElement[] {
  const { family } = frontend;
  const keying = keyingOf(frontend);
  const key = frontendKeyWords(frontend);
  const comment = commentOf(frontend);
  const elements = SOURCE_CLASSES.map((source): SetElement => {
    const target = targets[source];
    if (target === 'drop')
      return setElement(refusalMap(keying, source), { key, verdict: 'drop', comment }, 'drop');
    if (target === 'reject') {
      return setElement(
        refusalMap(keying, source),
        { key, verdict: { goto: 'reject' }, comment },
        'goto reject',
      );
    }
    const data = [...wordsOfAddress(target.address, family), be16Port(target.port)];
    return setElement(listenerMap(keying, source), { key, data, comment }, hexOfWords(data));
  });
  if (!frontend.allowedSources) return elements;
  elements.push(setElement('restricted', { key, comment }, ''));
  for (const { first, last } of outermost(frontend.allowedSources, family)) {
    const keyEnd = [...key, ...wordsOf(last)];
    elements.push(
      setElement('allowed-sources', { key: [...key, ...wordsOf(first)], keyEnd }, hexOfWords(keyEnd)),
    );
  }
  return elements;
}

/** A listener's own address, which only translated packets may be sent to. */
export function listenerElement(
  at: ListenAddress,
  { family, protocol, pool }: { family: IPFamily; protocol: 'TCP' | 'UDP'; pool: string },
): SetElement {
  const key = [...wordsOfAddress(at.address, family), PROTOCOL_NUMBER[protocol], be16Port(at.port)];
  return setElement(LISTENERS, { key, comment: pool }, '');
}

/** A cluster IP in use: wrong ports on it are rejected. */
export const clusterIPElement = (ip: string, family: IPFamily): SetElement =>
  setElement('cluster-ips', { key: wordsOfAddress(ip, family) }, '');

/** What depends on the node alone. */
export function nodeElements(node: NodeView, family: IPFamily): SetElement[] {
  const ports = node.nodePortAddresses[family];
  const networks = [
    ['service-networks', node.serviceCidrs],
    ['nodeport-networks', ports.all ? [] : ports.cidrs],
  ] as const;
  const own = new Set(node.ownServiceAddresses.filter((ip) => isOfFamily(ip, family)));
  return [
    ...[...own].map((ip) => setElement('own-addresses', { key: wordsOfAddress(ip, family) }, '')),
    ...networks.flatMap(([set, cidrs]) =>
      mergedRanges(cidrs, family).flatMap(({ first, last }) => {
        const end = successor(last);
        return [
          setElement(set, { key: wordsOf(first) }, 'start'),
          ...(end ? [setElement(set, { key: wordsOf(end), intervalEnd: true }, 'end')] : []),
        ];
      }),
    ),
  ];
}

export const isOfFamily = (address: string, family: IPFamily): boolean =>
  address.includes(':') === (family === 'ipv6');

/** Destination, protocol and port; without the destination for a node port. */
function frontendKeyWords({ address, family, protocol, port }: Frontend): number[] {
  return [
    ...(address === null ? [] : wordsOfAddress(address, family)),
    PROTOCOL_NUMBER[protocol],
    be16Port(port),
  ];
}

function setElement(set: string, element: Element, value: string): SetElement {
  return { set, element, id: `${set} ${hexOfWords(element.key)}`, value };
}

/** Where a listener's element says that it listens. */
export function readListenerKey(key: Uint8Array, family: IPFamily): ListenAddress {
  const length = addressWords(family) * 4;
  return {
    address: formatAddress(key.subarray(0, length)),
    port: ((key[length + 4] ?? 0) << 8) | (key[length + 5] ?? 0),
  };
}
