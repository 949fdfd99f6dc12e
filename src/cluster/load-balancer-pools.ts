import { fieldReader } from '../agent/field-reader.ts';
import { loadBalancerPools, readPools } from '../agent/load-balancer-pools.ts';
import { addressAt, type Cidr, FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import { addressFromNumber, parseAddressRange } from '../lib/address-range.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';

/** The pool of a list of addresses without a name. */
const DEFAULT_POOL = 'default';

/**
 * Reads the pools of `up --lb-pool`: addresses such as "192.0.2.0/28,192.0.2.77", or pools by name, as JSON in the form of
 * the agent's `loadBalancer.pools`. Throws FairleadError "bad-config" that names the wrong field or address.
 */
export function parsePools(text: string): LoadBalancerPool[] {
  const pools = text.trimStart().startsWith('{') ? poolsOfJson(text) : [poolOf(text.split(','))];
  for (const { ranges } of pools) {
    const wrong = ranges.find((range) => parseAddressRange(range) === null);
    if (wrong !== undefined)
      throw refusal(`${JSON.stringify(wrong)} is not a network (10.0.0.0/28) or a range (10.0.0.1-10.0.0.9)`);
  }
  return pools;
}

/** Throws FairleadError if a pool has addresses of a family that the cluster does not use. */
export function checkPoolFamilies(pools: readonly LoadBalancerPool[], families: readonly IPFamily[]): void {
  for (const range of pools.flatMap(({ ranges }) => ranges)) {
    const family = parseAddressRange(range)?.family;
    if (family !== undefined && !families.includes(family))
      throw refusal(`${range} is ${FAMILY_NAMES[family]}, which this cluster does not use`);
  }
}

/** The network between the nodes of a local cluster, with the host numbers that are for pools. */
export interface PoolNetwork {
  readonly cidr: Cidr;
  /** The first host number behind those of nodes and of the cluster's own programs. */
  readonly firstHost: number;
}

/**
 * Throws FairleadError if an address of a pool is outside the network between the nodes, where clients neither have a route
 * to it nor ask for its link-layer address, or is reserved for a node.
 */
export function checkPoolPlaces(pools: readonly LoadBalancerPool[], networks: readonly PoolNetwork[]): void {
  for (const text of pools.flatMap(({ ranges }) => ranges)) {
    const range = parseAddressRange(text);
    const network = networks.find(({ cidr }) => cidr.family === range?.family);
    const wire = network && parseAddressRange(network.cidr.text);
    if (!range || !network || !wire) continue;
    const first = addressAt(network.cidr, network.firstHost);
    const last = addressFromNumber(range.family, wire.last);
    const use = `use addresses from ${first} to ${last}, or omit it`;
    if (range.first < wire.first || range.last > wire.last)
      throw refusal(`${text} is outside the network between the nodes, ${network.cidr.text}`, use);
    if (range.first < wire.first + BigInt(network.firstHost))
      throw refusal(`${text} overlaps the addresses of nodes, which are those before ${first}`, use);
  }
}

/** Renders pools in the form that `parsePools` reads; equal pools have equal texts. */
export function poolsText(pools: readonly LoadBalancerPool[]): string {
  const [first, ...others] = pools;
  if (first?.name === DEFAULT_POOL && others.length === 0 && Object.keys(first).length === 2)
    return first.ranges.join();
  return JSON.stringify(
    Object.fromEntries(
      pools.map(({ name, ranges, autoAssign, ...serviceAllocation }) => [
        name,
        { addresses: ranges, autoAssign, serviceAllocation },
      ]),
    ),
  );
}

/** Returns the pool of addresses without a name. */
export const poolOf = (ranges: readonly string[]): LoadBalancerPool => ({ name: DEFAULT_POOL, ranges });

function poolsOfJson(text: string): LoadBalancerPool[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refusal(`is not JSON: ${messageOf(error)}`);
  }
  const reader = fieldReader({ 'lb-pool': value });
  const pools = loadBalancerPools(readPools(reader, 'lb-pool'));
  reader.finish('read --lb-pool');
  return pools;
}

function refusal(message: string, hint = 'use another --lb-pool, or omit it'): FairleadError {
  return new FairleadError(`--lb-pool: ${message}`, {
    op: 'read --lb-pool',
    code: 'bad-cidr',
    hint,
  });
}
