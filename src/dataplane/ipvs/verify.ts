import type { Drift } from '../dataplane.ts';
import { INTERFACE } from './service-interface.ts';

/** Compares the addresses of our interface; `wanted` are those that it must have. */
export function compareAddresses(
  wanted: ReadonlySet<string>,
  shown: ReadonlySet<string>,
  others: ReadonlySet<string>,
): Drift[] {
  const drifts: Drift[] = [];
  for (const address of wanted) {
    const object = `address ${address} of ${INTERFACE}`;
    if (!shown.has(address)) drifts.push({ object, kind: 'missing' });
    else if (others.has(address)) drifts.push({ object, kind: 'unexpected' });
  }
  for (const address of shown) {
    if (!wanted.has(address))
      drifts.push({ object: `address ${address} of ${INTERFACE}`, kind: 'unexpected' });
  }
  return drifts;
}
