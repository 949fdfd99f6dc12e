import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import { PRIORITY } from '../../kernel/nftables/priorities.ts';
import type { IPFamily } from '../../lib/address.ts';
import { addressFields, inSet } from '../../nft/rule.ts';
import type { AddressSet, ElementGroup, TableSpec } from '../../nft/spec.ts';
import { noteAddresses } from '../rules/address-elements.ts';
import { opensFlow, refuse } from './layout.ts';

/**
 * The table exists while another mode is active and open connections still use virtual servers. The draining process
 * stops when the table is deleted.
 */
export const DRAIN_TABLE = 'fairlead-ipvs-drain';

const ADDRESSES: AddressSet = { set: 'addresses', times: 1, prefix: 'addresses ' };

/** Renders the table: it rejects new flows to these addresses that the other mode has not translated. */
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
        base: { type: 'filter', hook: 'input', priority: PRIORITY.beforeIpvs },
        rules: refuse(opensFlow, inSet(ADDRESSES.set, destination)),
      },
    ],
    groups,
  };
}
