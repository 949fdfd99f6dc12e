import type { ElementVerdict } from '../kernel/nftables/batch.ts';
import { DATA_TYPE, type DataType, type TableFamily } from '../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { formatMac } from '../kernel/rtnetlink/links.ts';
import { formatAddress } from '../lib/address.ts';
import { elementsOf } from './address-set.ts';
import { hexOf } from './encoding.ts';
import {
  destinationIsLocal,
  FIELDS,
  type KeyPart,
  type Rule,
  type Statement,
  sourceIsLocal,
} from './rule.ts';
import { type ChainSpec, type Elements, type SetSpec, type Shape, shapeOf, type TableSpec } from './spec.ts';

const TYPE_NAMES = new Map<DataType, string>([
  [DATA_TYPE.ipv4Address, 'ipv4_addr'],
  [DATA_TYPE.ipv6Address, 'ipv6_addr'],
  [DATA_TYPE.etherAddress, 'ether_addr'],
  [DATA_TYPE.etherType, 'ether_type'],
  [DATA_TYPE.protocol, 'inet_proto'],
  [DATA_TYPE.port, 'inet_service'],
  [DATA_TYPE.mark, 'mark'],
  [DATA_TYPE.interfaceName, 'ifname'],
  [DATA_TYPE.number, 'integer'],
]);
const PROTOCOL_NAMES = new Map(
  Object.entries(PROTOCOL_NUMBER).map(([name, number]) => [number, name.toLowerCase()]),
);

const ADDRESS_TYPES: ReadonlySet<DataType> = new Set([DATA_TYPE.ipv4Address, DATA_TYPE.ipv6Address]);

/** Returns the prefix length of a network's mask; null for other masks. */
function prefixOf(mask: Uint8Array): number | null {
  const bits = [...mask].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  return /^1*0*$/.test(bits) ? bits.replaceAll('0', '').length : null;
}

/** Returns "ip fairlead", "ip6 fairlead", "netdev fairlead". */
export const tableTitle = (family: TableFamily, name: string): string =>
  `${{ ipv4: 'ip', ipv6: 'ip6', netdev: 'netdev' }[family]} ${name}`;

/** Prints a table like `nft list table`, sets and chains by name, elements in order. */
export function printTable(spec: TableSpec): string {
  const fragments = new Set([...spec.groups.values()].flatMap(({ needs }) => needs));
  const owned = [...spec.groups.values()].flatMap(({ chains = [] }) => chains);
  const sets = new Map(
    [...spec.sets, ...[...fragments].flatMap((one) => one.sets)].map((set) => [set.name, set]),
  );
  const chains = new Map(
    [...spec.chains, ...[...fragments].flatMap((one) => one.chains), ...owned].map((chain) => [
      chain.name,
      chain,
    ]),
  );
  for (const { name, rules } of [...fragments].flatMap((one) => one.rules)) {
    const chain = chains.get(name);
    if (chain) chains.set(name, { ...chain, rules: [...chain.rules, ...rules] });
  }
  const elements = new Map<string, string[]>();
  for (const [owner, group] of spec.groups) {
    for (const one of elementsOf(owner, group, spec.family)) {
      const set = sets.get(one.set);
      if (!set) continue;
      const list = elements.get(one.set) ?? [];
      elements.set(one.set, list);
      for (const line of printElements(set, shapeOf(set), one)) list.push(line);
    }
  }
  return [
    `table ${tableTitle(spec.family, spec.name)} {`,
    ...[...sets.values()].sort(byName).map((set) => printSet(set, elements.get(set.name) ?? [])),
    ...[...chains.values()].sort(byName).map(printChain),
    '}',
    '',
  ].join('\n');
}

const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
const concatenated = (types: readonly DataType[]) =>
  types.map((type) => TYPE_NAMES.get(type) ?? `type ${type.id}`).join(' . ');

function printSet(set: SetSpec, elements: readonly string[]): string {
  const { data } = set;
  const flags = [...(set.interval ? ['interval'] : []), ...(set.dynamic ? ['dynamic', 'timeout'] : [])];
  const value = data === undefined ? '' : data === 'verdict' ? ' : verdict' : ` : ${concatenated(data)}`;
  return [
    `  ${data === undefined ? 'set' : 'map'} ${set.name} {`,
    `    type ${concatenated(set.key)}${value}`,
    ...(flags.length > 0 ? [`    flags ${flags.join(', ')}`] : []),
    ...(set.counted ? ['    counter'] : []),
    ...(elements.length > 0
      ? [
          '    elements = {',
          elements
            .toSorted()
            .map((one) => `      ${one}`)
            .join(',\n'),
          '    }',
        ]
      : []),
    '  }',
  ].join('\n');
}

function printChain({ name, base, rules }: ChainSpec): string {
  return [
    `  chain ${name} {`,
    ...(base
      ? [
          `    type ${base.type} hook ${base.hook}${base.device === undefined ? '' : ` device "${base.device}"`} priority ${base.priority}; policy ${base.policy ?? 'accept'};`,
        ]
      : []),
    ...rules.map((rule) => `    ${printRule(rule)}`),
    '  }',
  ].join('\n');
}

export const printRule = (rule: Rule): string => rule.map(printStatement).join(' ');

/** Of a host: in a table of the family ip6, `nft` says "icmpv6 addr-unreachable". */
const REJECTIONS = {
  'tcp-reset': 'reject with tcp reset',
  'port-unreachable': 'reject',
  'host-unreachable': 'reject with icmp host-unreachable',
} as const;

function printStatement(statement: Statement): string {
  switch (statement.kind) {
    case 'match': {
      const { field, operation, value, mask } = statement;
      const { text, type } = FIELDS[field];
      const sign = operation === '==' ? '' : '!= ';
      const isPart = value.length < type.length;
      const prefix = !ADDRESS_TYPES.has(type)
        ? null
        : mask
          ? prefixOf(mask)
          : isPart
            ? value.length * 8
            : null;
      if (prefix !== null) return `${text} ${sign}${formatField(type, value)}/${prefix}`;
      if (statement === destinationIsLocal || statement === sourceIsLocal) return `${text} local`;
      if (field === 'ip.dscp' || field === 'ip6.dscp') return `${text} ${sign}${readDscp(value, field)}`;
      const bits = mask ? ` & ${formatField(type, mask)}` : '';
      return `${text}${bits} ${sign}${formatField(type, value)}`;
    }
    case 'lookup':
      return `${printKey(statement.key)} ${statement.negated ? '!= ' : ''}@${statement.set}`;
    case 'vmap':
      return `${printKey(statement.key)} vmap @${statement.map}`;
    case 'dnat':
      return `dnat to ${printKey(statement.key)} map @${statement.map}`;
    case 'snat':
      return `snat to ${printKey(statement.key)} map @${statement.map}`;
    case 'keep-source':
      return 'snat to saddr';
    case 'mark':
      return `meta mark set meta mark and ${hex(statement.keep)}${statement.set === 0 ? '' : ` xor ${hex(statement.set)}`}`;
    case 'dscp':
      return `ip dscp set ${statement.value}`;
    case 'mark-from':
      return `meta mark set ${printKey(statement.key)} map @${statement.map}`;
    case 'update':
      return `update @${statement.map} { ${printKey(statement.key)} timeout ${statement.timeoutMs / 1000}s : ${printKey(statement.data)} }`;
    case 'remember':
      return `update @${statement.set} { ${printKey(statement.key)} timeout ${statement.timeoutMs / 1000}s }`;
    case 'over-rate': {
      const { perSecond, burst } = statement.rate;
      return `update @${statement.set} { ${printKey(statement.key)} timeout ${statement.timeoutMs / 1000}s limit rate over ${perSecond}/second burst ${burst} packets }`;
    }
    case 'count-key':
      return `update @${statement.set} { ${printKey(statement.key)} timeout ${statement.timeoutMs / 1000}s counter }`;
    case 'zone':
      return `ct original zone set ${statement.zone}`;
    case 'counter':
      return 'counter';
    case 'verdict':
      return formatVerdict(statement.verdict);
    case 'masquerade':
      return 'masquerade fully-random';
    case 'queue':
      return `queue num ${statement.number} bypass`;
    case 'reject':
      return REJECTIONS[statement.with];
  }
}

const readDscp = ([first = 0, second = 0]: Uint8Array, field: 'ip.dscp' | 'ip6.dscp'): number =>
  field === 'ip.dscp' ? second >> 2 : ((first & 0x0f) << 2) | (second >> 6);

const printKey = (key: readonly KeyPart[]): string =>
  key
    .map((part) => (typeof part === 'string' ? FIELDS[part].text : `numgen random mod ${part.random}`))
    .join(' . ');

export function printElements(set: SetSpec, shape: Shape, one: Elements): string[] {
  const { words, at, count, head, verdict, comment } = one;
  const { keyWords, dataWords, stride, range } = shape;
  const bytes = (from: number, length: number) => new Uint8Array(words.slice(from, from + length).buffer);
  const note = comment === undefined ? '' : ` comment "${comment}"`;
  return Array.from({ length: count }, (_, i) => {
    const start = at + i * (head ? dataWords : stride);
    const key = head ? new Uint8Array(Uint32Array.from([...head, i]).buffer) : bytes(start, keyWords);
    const keyText =
      range === 'none'
        ? formatKey(set.key, key)
        : formatRange(set.key, key, bytes(start + keyWords, keyWords));
    const dataAt = start + (head ? 0 : stride - dataWords);
    const data =
      set.data && set.data !== 'verdict' ? ` : ${formatKey(set.data, bytes(dataAt, dataWords))}` : '';
    return `${keyText}${note}${verdict === null ? data : ` : ${formatVerdict(verdict)}`}`;
  });
}

export const formatVerdict = (verdict: ElementVerdict | { readonly jump: string } | 'return'): string =>
  typeof verdict === 'string' ? verdict : 'goto' in verdict ? `goto ${verdict.goto}` : `jump ${verdict.jump}`;

/** Returns "10.96.0.10 . tcp . 80". */
export const formatKey = (types: readonly DataType[], bytes: Uint8Array): string =>
  fieldsOf(types, bytes).join(' . ');

/** Returns "10.96.0.10 . tcp . 80 . 192.0.2.0/24", "192.0.2.7-192.0.2.9". */
function formatRange(types: readonly DataType[], first: Uint8Array, last: Uint8Array): string {
  const to = fieldsOf(types, last);
  let at = 0;
  return fieldsOf(types, first)
    .map((text, i) => {
      const { length } = types[i] ?? { length: 0 };
      const prefix = networkPrefix(first.subarray(at, at + length), last.subarray(at, at + length));
      at += (length + 3) & ~3;
      if (text === to[i]) return text;
      return prefix === null ? `${text}-${to[i]}` : `${text}/${prefix}`;
    })
    .join(' . ');
}

/** Returns the length of the prefix that all addresses of a range share; null: the range is not a network. */
function networkPrefix(first: Uint8Array, last: Uint8Array): number | null {
  const varying = first.map((byte, i) => byte ^ (last[i] ?? 0));
  const isLowest = first.every((byte, i) => (byte & (varying[i] ?? 0)) === 0);
  return isLowest ? prefixOf(varying.map((bits) => ~bits)) : null;
}

function fieldsOf(types: readonly DataType[], bytes: Uint8Array): string[] {
  let at = 0;
  return types.map((type) => {
    const field = bytes.subarray(at, at + type.length);
    at += (type.length + 3) & ~3;
    return formatField(type, field);
  });
}

function formatField(type: DataType, bytes: Uint8Array): string {
  switch (type) {
    case DATA_TYPE.ipv4Address:
    case DATA_TYPE.ipv6Address: {
      // Of a network, only the leading bytes may be given.
      const whole = new Uint8Array(type.length);
      whole.set(bytes);
      return formatAddress(whole);
    }
    case DATA_TYPE.protocol:
      return PROTOCOL_NAMES.get(bytes[0] ?? 0) ?? String(bytes[0]);
    case DATA_TYPE.port:
      return String(((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0));
    case DATA_TYPE.etherAddress:
      return formatMac(bytes);
    case DATA_TYPE.etherHeader:
    case DATA_TYPE.etherType:
      return `0x${hexOf(bytes)}`;
    case DATA_TYPE.byte:
      return String(bytes[0]);
    case DATA_TYPE.interfaceName: {
      const text = Buffer.from(bytes).toString('latin1');
      const end = text.indexOf('\0');
      return end < 0 ? `"${text}*"` : `"${text.slice(0, end)}"`;
    }
    default:
      return hex(new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(0, true));
  }
}

const hex = (value: number): string => `0x${value.toString(16).padStart(8, '0')}`;
