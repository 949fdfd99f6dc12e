import type { LabelSelector } from '../kube/types.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import { addressRange } from './address-fields.ts';
import type { FieldReader } from './field-reader.ts';

/**
 * A pool of load-balancer addresses in the configuration; the fields are those of MetalLB's IPAddressPool.
 */
export interface PoolConfiguration {
  readonly addresses: readonly string[];
  readonly autoAssign: boolean;
  readonly serviceAllocation: {
    readonly priority: number;
    readonly namespaces: readonly string[];
    readonly namespaceSelectors: readonly LabelSelector[];
    readonly serviceSelectors: readonly LabelSelector[];
  };
}

const OPERATORS = ['In', 'NotIn', 'Exists', 'DoesNotExist'] as const;

export function readPools(reader: FieldReader, field: string): Record<string, PoolConfiguration> {
  return reader.objectsByName(field, 'addresses', (pool) => ({
    addresses: pool.texts('addresses', [], addressRange),
    autoAssign: pool.flag('autoAssign', true),
    serviceAllocation: pool.object('serviceAllocation', (allocation) => ({
      priority: allocation.number('priority', 0, 0, 1_000_000),
      namespaces: allocation.texts('namespaces', []),
      namespaceSelectors: allocation.objects('namespaceSelectors', readSelector),
      serviceSelectors: allocation.objects('serviceSelectors', readSelector),
    })),
  }));
}

export function loadBalancerPools(pools: Readonly<Record<string, PoolConfiguration>>): LoadBalancerPool[] {
  return Object.entries(pools).map(([name, { addresses, autoAssign, serviceAllocation }]) => ({
    name,
    ranges: addresses,
    autoAssign,
    ...serviceAllocation,
  }));
}

function readSelector(reader: FieldReader): LabelSelector {
  return {
    matchLabels: reader.textsByName('matchLabels'),
    matchExpressions: reader.objects('matchExpressions', (expression) => {
      const key = expression.text('key', '');
      if (key === '') expression.problem('key', 'is missing');
      return {
        key,
        operator: expression.choice('operator', OPERATORS, 'In'),
        values: expression.texts('values', []),
      };
    }),
  };
}
