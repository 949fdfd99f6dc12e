/**
 * The marks of packets that belong to an egress gateway: a prefix that no other program's masks select by chance, and the number of
 * the address. They replace the whole mark, and so also the mark by which a mode masquerades.
 */
const PREFIX = 0x5e600000;
/** The bits that a number leaves. */
export const MARK_PREFIX = { value: PREFIX, mask: 0xfff00000 } as const;
/** This node has the address, and translates the packet itself. */
const HELD = 0x00010000;
export const MAX_NUMBER = 4095;
/** The routing table of an address is this and its number. */
const FIRST_TABLE = 0x5e60000;
/** The rules that select those tables come behind the table of local addresses (0), before all others. */
export const RULE_PRIORITY = 660;

export const markOf = (number: number): number => PREFIX | number;
export const heldMarkOf = (number: number): number => PREFIX | HELD | number;
export const routingTableOf = (number: number): number => FIRST_TABLE | number;
export const isRoutingTable = (table: number): boolean => table >>> 12 === FIRST_TABLE >>> 12;

/**
 * Numbers addresses, each with the number that it had before, or one that none had: a number that is used again could select an
 * address by what another one left in the kernel. After all have been used, the lowest that is free.
 */
export function numberAddresses(
  addresses: Iterable<string>,
  before: ReadonlyMap<string, number> = new Map(),
): Map<string, number> {
  const numbers = new Map<string, number>();
  const wanted = [...new Set(addresses)].sort();
  for (const address of wanted) {
    const known = before.get(address);
    if (known !== undefined) numbers.set(address, known);
  }
  const taken = new Set(numbers.values());
  const highest = Math.max(0, ...before.values());
  let next = highest + wanted.length > MAX_NUMBER ? 1 : highest + 1;
  for (const address of wanted) {
    if (numbers.has(address)) continue;
    while (taken.has(next)) next++;
    if (next > MAX_NUMBER) break;
    taken.add(next);
    numbers.set(address, next);
  }
  return numbers;
}
