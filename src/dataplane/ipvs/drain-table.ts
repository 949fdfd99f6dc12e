import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import type { IPFamily } from '../../lib/address.ts';
import { addressFields, inSet } from '../../nft/rule.ts';
import type { ElementGroup, TableSpec } from '../../nft/spec.ts';
import { type AddressSet, noteAddresses } from '../rules/address-elements.ts';
import { BEFORE_IPVS_INPUT, opensFlow, refuse } from './layout.ts';

/**
 * Exists while another mode carries Services and open connections still go by virtual servers. The process that drains
 * these stops when the table is gone.
 */
export const DRAIN_TABLE = 'fairlead-ipvs-drain';

const ADDRESSES: AddressSet = { set: 'addresses', times: 1 };

/** Renders the table: new flows to these addresses that no other mode has taken are refused. */
export function renderDrainTable(family: IPFamily, addresses: Iterable<string>): TableSpec {
  const { destination } = addressFields(family);
  const groups = new Map<string, ElementGroup>();
  noteAddresses(groups, ADDRESSES, family, addresses);
  return {
    family,
    name: DRAIN_TABLE,
    sets: [{ name: ADDRESSES.set, key: [family === 'ipv4' ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address] }],
    chains: [
      {
        name: 'input',
        base: { type: 'filter', hook: 'input', priority: BEFORE_IPVS_INPUT },
        rules: refuse(opensFlow, inSet(ADDRESSES.set, destination)),
      },
    ],
    groups,
  };
}
