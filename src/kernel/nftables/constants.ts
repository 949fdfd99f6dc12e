// linux/netfilter/nf_tables.h, nfnetlink.h, netfilter.h

export const NFNL_SUBSYS_NFTABLES = 10;
export const NFNLGRP_NFTABLES = 7;
export const NFNL_MSG_BATCH_BEGIN = 0x10;
export const NFNL_MSG_BATCH_END = 0x11;

/** In a dump: the tables of all families. */
export const NFPROTO_UNSPEC = 0;
/** Tables of both IP families; Fairlead's have one each. */
export const NFPROTO_INET = 1;

export const NFPROTO = { ipv4: 2, netdev: 5, ipv6: 10 } as const;
/** The families of tables: of IP packets, or of the frames of devices. */
export type TableFamily = keyof typeof NFPROTO;

/** Low byte of a message's type. */
export const NFT_MSG = {
  newTable: 0,
  getTable: 1,
  delTable: 2,
  newChain: 3,
  getChain: 4,
  delChain: 5,
  newRule: 6,
  getRule: 7,
  delRule: 8,
  newSet: 9,
  getSet: 10,
  delSet: 11,
  newElements: 12,
  getElements: 13,
  delElements: 14,
  newGeneration: 15,
  getGeneration: 16,
  destroyElements: 30,
} as const;

/** Attribute numbers, by the enum of linux/netfilter/nf_tables.h that they belong to (NFTA_TABLE_NAME: `NFTA.table.name`). */
export const NFTA = {
  table: { name: 1, flags: 2 },
  chain: { table: 1, name: 3, hook: 4, policy: 5, type: 7 },
  hook: { number: 1, priority: 2, device: 3 },
  rule: { table: 1, chain: 2, handle: 3, expressions: 4, userdata: 7 },
  list: { element: 1 },
  set: {
    table: 1,
    name: 2,
    flags: 3,
    keyType: 4,
    keyLength: 5,
    dataType: 6,
    dataLength: 7,
    description: 9,
    id: 10,
    userdata: 13,
    expression: 17,
  },
  setDescription: { size: 1, concatenation: 2 },
  setField: { length: 1 },
  setElements: { table: 1, set: 2, elements: 3 },
  setElement: {
    key: 1,
    data: 2,
    flags: 3,
    timeout: 4,
    expiration: 5,
    userdata: 6,
    expression: 7,
    keyEnd: 10,
  },
  data: { value: 1, verdict: 2 },
  verdict: { code: 1, chain: 2 },
  generation: { id: 1, processId: 2, processName: 3 },
  expression: { name: 1, data: 2 },
  payload: { destination: 1, base: 2, offset: 3, length: 4, source: 5, checksumType: 6, checksumOffset: 7 },
  meta: { destination: 1, key: 2, source: 3 },
  ct: { destination: 1, key: 2, direction: 3, source: 4 },
  rt: { destination: 1, key: 2 },
  socket: { key: 1, destination: 2 },
  cmp: { source: 1, operation: 2, data: 3 },
  range: { source: 1, operation: 2, from: 3, to: 4 },
  bitwise: { source: 1, destination: 2, length: 3, mask: 4, xor: 5, operation: 6 },
  counter: { bytes: 1, packets: 2 },
  lookup: { set: 1, source: 2, destination: 3, flags: 5 },
  immediate: { destination: 1, data: 2 },
  nat: { type: 1, family: 2, address: 3, port: 5 },
  masquerade: { flags: 1 },
  reject: { type: 1, icmpCode: 2 },
  fib: { destination: 1, result: 2, flags: 3 },
  numgen: { destination: 1, modulus: 2, type: 3, offset: 4 },
  queue: { number: 1, total: 2, flags: 3 },
  /** Of x_tables; a match has the same attributes. */
  target: { name: 1, revision: 2, info: 3 },
  objref: { type: 1 },
  dynset: { set: 1, operation: 3, key: 4, data: 5, timeout: 6, expression: 7 },
  limit: { rate: 1, unit: 2, burst: 3, type: 4, flags: 5 },
} as const;

/** NFNL_BATCH_GENID. */
export const BATCH_GENERATION = 1;

/** NFT_SET_ELEM_INTERVAL_END. */
export const ELEMENT_INTERVAL_END = 1;

export const TABLE_FLAG = { dormant: 1, owner: 2, persist: 4 } as const;

export const SET_FLAG = {
  anonymous: 1,
  constant: 2,
  interval: 4,
  map: 8,
  timeout: 0x10,
  evaluated: 0x20,
  concatenated: 0x80,
} as const;

/** enum nf_inet_hooks and enum nf_dev_hooks: "ingress" belongs to tables of the family netdev. */
export const HOOK = {
  prerouting: 0,
  input: 1,
  forward: 2,
  output: 3,
  postrouting: 4,
  ingress: 0,
} as const;
export type Hook = keyof typeof HOOK;

export const VERDICT = { drop: 0, accept: 1, jump: -3, goto: -4, return: -5 } as const;

/** The type of the data of a verdict map. */
export const VERDICT_DATA = 0xffffff00;

/** Register that holds the verdict. */
export const VERDICT_REGISTER = 0;

/**
 * Returns the number that the kernel uses for the n-th 32-bit register, 0 to 15 (NFT_REG32_00 and on):
 * every fourth one has the name of the 128-bit register that starts there. A rule cannot read what an
 * earlier rule loaded.
 */
export const register = (n: number): number => (n % 4 === 0 ? 1 + n / 4 : 8 + n);

/** Element userdata TLV types and set userdata TLV types of libnftnl (udata.h): how `nft` reads what it lists. */
export const UDATA_ELEMENT_COMMENT = 0;
export const UDATA_RULE_COMMENT = 0;
export const UDATA_SET_KEY_BYTE_ORDER = 0;
export const UDATA_SET_DATA_BYTE_ORDER = 1;
export const BYTE_ORDER = { host: 1, network: 2 } as const;

/** Data types by `nft`'s numbering (datatype.h), with their length in bytes. Kernel: opaque. */
export const DATA_TYPE = {
  ipv4Address: { id: 7, length: 4 },
  ipv6Address: { id: 8, length: 16 },
  etherAddress: { id: 9, length: 6 },
  /** Only for comparisons. */
  etherHeader: { id: 9, length: 14 },
  etherType: { id: 10, length: 2 },
  protocol: { id: 12, length: 1 },
  port: { id: 13, length: 2 },
  /** Only for comparisons: `nft` has no suitable type for sets of these. */
  number: { id: 4, length: 4 },
  interfaceName: { id: 41, length: 16 },
  /** Only for comparisons. */
  byte: { id: 4, length: 1 },
  /** 32 bits in host order. `integer` would make `nft list` abort in a concatenation. */
  mark: { id: 19, length: 4 },
} as const;
export type DataType = (typeof DATA_TYPE)[keyof typeof DATA_TYPE];

/** Returns the bytes that a concatenation takes in registers: each field is padded to 32 bits. */
export function concatLength(types: readonly DataType[]): number {
  return types.reduce((sum, type) => sum + ((type.length + 3) & ~3), 0);
}

/** Returns the type number of a concatenation: six bits per field, the first field highest. */
export function concatType(types: readonly DataType[]): number {
  return types.reduce((sum, type) => ((sum << 6) | type.id) >>> 0, 0);
}
