import { type MapDefinition, NO_PREALLOC } from '../../kernel/bpf/map.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { Cidr } from '../../lib/address.ts';
import { maskOf } from '../../nft/ranges.ts';
import type { Frontend, LocalDetection, Protocol } from '../../service/model.ts';
import { FRONTEND_KEY_SIZE, mappedAddress } from './layout.ts';

/* The bytes that the agent shares with the programs at the uplink: bpf/uplink.h has the same structures. */

export type UplinkMapName =
  | 'uplink_frontends'
  | 'uplink_endpoints'
  | 'uplink_addresses'
  | 'uplink_flows'
  | 'uplink_pieces'
  | 'uplink_config';

const CONFIG_SIZE = 72;
const FLOW_SIZE = 40;
const FLOW_VALUE_SIZE = 32;
const ENDPOINT_SIZE = 20;
/** Two entries for each flow: 17 MB of the kernel's memory, which is taken when the programs are put to work. */
const FLOWS = 1 << 17;

const map = (
  kind: MapDefinition['kind'],
  name: string,
  keySize: number,
  valueSize: number,
  room: number,
) => ({
  name,
  kind,
  keySize,
  valueSize,
  maxEntries: room,
  ...(kind === 'hash' ? { flags: NO_PREALLOC } : {}),
});

export const UPLINK_MAPS: Readonly<Record<UplinkMapName, MapDefinition>> = {
  uplink_frontends: map('hash', 'fl_up_frontends', FRONTEND_KEY_SIZE, 8, 1 << 14),
  uplink_endpoints: map('hash', 'fl_up_endpoints', 8, ENDPOINT_SIZE, 1 << 16),
  uplink_addresses: map('hash', 'fl_up_addresses', 16, 4, 1 << 10),
  uplink_flows: map('lruHash', 'fl_up_flows', FLOW_SIZE, FLOW_VALUE_SIZE, FLOWS),
  uplink_pieces: map('lruHash', 'fl_up_pieces', 40, 16, 1 << 12),
  uplink_config: map('array', 'fl_up_config', 4, CONFIG_SIZE, 1),
};

/** Key of a frontend; node ports are under the address of no host in their family. */
export function uplinkKey({
  family,
  address,
  port,
  protocol,
}: Pick<Frontend, 'family' | 'address' | 'port' | 'protocol'>): Uint8Array {
  const out = new Uint8Array(FRONTEND_KEY_SIZE);
  out.set(mappedAddress(address ?? (family === 'ipv4' ? '0.0.0.0' : '::')));
  new DataView(out.buffer).setUint16(16, port);
  out[18] = PROTOCOL_NUMBER[protocol];
  return out;
}

export function pairOf(first: number, second: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(first, second).buffer);
}

export function endpointValue(ip: string, port: number): Uint8Array {
  const out = new Uint8Array(ENDPOINT_SIZE);
  out.set(mappedAddress(ip));
  new DataView(out.buffer).setUint16(16, port);
  return out;
}

/** `leaving`: no flow begins any more. Sources of pods are told by their networks. */
export function uplinkConfig(leaving: boolean, detection: LocalDetection): Uint8Array {
  const out = new Uint8Array(CONFIG_SIZE);
  out[0] = leaving ? 1 : 0;
  const networks = 'ipv4' in detection ? [detection.ipv4, detection.ipv6] : [null, null];
  for (const [i, cidr] of networks.entries()) {
    const { network, mask } = maskedNetwork(cidr);
    out.set(network, 8 + i * 16);
    out.set(mask, 40 + i * 16);
  }
  return out;
}

/** The same configuration, but that no flow begins. */
export function asLeaving(config: Uint8Array): Uint8Array {
  const out = config.slice();
  out[0] = 1;
  return out;
}

/** Null: a network that no address is in. */
function maskedNetwork(cidr: Cidr | null): { network: Uint8Array; mask: Uint8Array } {
  const mask = new Uint8Array(16);
  if (!cidr) return { network: new Uint8Array(16).fill(0xff), mask };
  const bits = maskOf(cidr);
  mask.fill(0xff, 0, 16 - bits.length);
  mask.set(bits, 16 - bits.length);
  const network = mappedAddress(cidr.text.replace(/\/.*/, '')).map((byte, i) => byte & (mask[i] ?? 0));
  return { network, mask };
}

/** What an entry of the map of flows says its packets get: another destination, another source, or nothing. */
export const DIRECTION = { toEndpoint: 0, fromEndpoint: 1, stay: 2 } as const;

export interface UplinkFlow {
  /** Of the last packet, in monotonic nanoseconds; of an endpoint that has not answered 0n. */
  readonly seen: bigint;
  readonly direction: number;
  readonly finished: boolean;
  readonly reset: boolean;
  readonly isTcp: boolean;
  /** Key of the entry for the other side's packets. */
  readonly other: Uint8Array;
}

export function readUplinkFlow(key: Uint8Array, value: Uint8Array): UplinkFlow {
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  const other = key.slice();
  other.set(value.subarray(8, 24), 16);
  other.set(value.subarray(24, 26), 34);
  return {
    seen: view.getBigUint64(0, true),
    direction: value[26] ?? 0,
    finished: ((value[27] ?? 0) & 1) !== 0,
    reset: ((value[27] ?? 0) & 2) !== 0,
    isTcp: key[36] === PROTOCOL_NUMBER.TCP,
    other,
  };
}

interface At {
  readonly ip: string;
  readonly port: number;
}

/** Key of what a client sends to a Service. */
export function uplinkFlowKey(client: At, service: At, protocol: Protocol): Uint8Array {
  const out = new Uint8Array(FLOW_SIZE);
  const view = new DataView(out.buffer);
  out.set(mappedAddress(client.ip), 0);
  out.set(mappedAddress(service.ip), 16);
  view.setUint16(32, client.port);
  view.setUint16(34, service.port);
  out[36] = PROTOCOL_NUMBER[protocol];
  return out;
}

/** Entry of a flow that nf_tables has. */
export function stayValue(now: bigint): Uint8Array {
  const out = new Uint8Array(FLOW_VALUE_SIZE);
  new DataView(out.buffer).setBigUint64(0, now, true);
  out[26] = DIRECTION.stay;
  return out;
}
