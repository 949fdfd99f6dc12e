import type { Expression, NftBatch } from '../../kernel/nftables/batch.ts';
import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import {
  BASE,
  bitwise,
  CMP,
  CT,
  compare,
  ct,
  inSet,
  META,
  meta,
  payload,
  rejectPort,
  rejectWithReset,
} from '../../kernel/nftables/expressions.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { familyOf, type IPFamily } from '../../lib/address.ts';
import { addressWords, writeAddress } from '../../nft/encoding.ts';

/**
 * Stands while another mode carries Services and open connections still go by virtual servers. Its end tells who looks
 * after these to stop.
 */
export const LEAVING_TABLE = 'fairlead-ipvs-leaving';

const BEFORE_IPVS_INPUT = 97;
/** NF_CT_STATE_BIT(IP_CT_NEW), little-endian. */
const NEW = Uint8Array.of(8, 0, 0, 0);

/** Writes the table: what comes to these addresses, and no other mode has taken, is refused. */
export function createLeavingTable(batch: NftBatch, family: IPFamily, addresses: readonly string[]): void {
  const v4 = family === 'ipv4';
  const words = addressWords(family);
  const none = new Uint8Array(4);
  batch.addTable(LEAVING_TABLE, 0);
  batch.addSet(LEAVING_TABLE, {
    name: 'addresses',
    key: [v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address],
  });
  batch.addChain(LEAVING_TABLE, 'input', { type: 'filter', hook: 'input', priority: BEFORE_IPVS_INPUT });
  const refused: Expression[] = [
    ct(CT.state, 0),
    bitwise(0, 0, NEW, none),
    compare(0, CMP.notEqual, none),
    payload(BASE.network, v4 ? 16 : 24, words * 4, 0),
    inSet('addresses', 0),
    meta(META.protocol, 0),
  ];
  const is = (protocol: number) => compare(0, CMP.equal, Uint8Array.of(protocol));
  batch.addRule(LEAVING_TABLE, 'input', [...refused, is(PROTOCOL_NUMBER.TCP), rejectWithReset]);
  for (const protocol of [PROTOCOL_NUMBER.UDP, PROTOCOL_NUMBER.SCTP]) {
    batch.addRule(LEAVING_TABLE, 'input', [...refused, is(protocol), rejectPort(v4 ? 3 : 4)]);
  }
  for (const address of addresses) {
    if (familyOf(address) !== family) continue;
    const key = new Uint32Array(words);
    writeAddress(address, family, key, 0);
    batch.addElement(LEAVING_TABLE, 'addresses', { key });
  }
}
