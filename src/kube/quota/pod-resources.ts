import { at, isObject, listAt } from '../json.ts';
import { type Amounts, addAmounts, maxAmounts } from './amounts.ts';

/** Returns the amounts at a path ("resources", "limits"); {} if absent. */
export function amountsAt(object: unknown, ...path: string[]): Amounts {
  const value = at(object, ...path);
  if (!isObject(value)) return {};
  return Object.fromEntries(Object.entries(value).map(([name, amount]) => [name, String(amount)]));
}

/**
 * Returns the total requests or limits of a pod: its containers and sidecars together, or its init containers at the
 * peak (k8s.io/component-helpers/resource PodRequests, PodLimits). Amounts of the whole pod take precedence.
 */
export function podAmounts(pod: unknown, which: 'requests' | 'limits'): Amounts {
  const { spec } = pod as { spec?: unknown };
  let running: Amounts = {};
  for (const container of listAt(spec, 'containers')) {
    running = addAmounts(running, amountsAt(container, 'resources', which));
  }
  let sidecars: Amounts = {};
  let peak: Amounts = {};
  for (const container of listAt(spec, 'initContainers')) {
    const own = amountsAt(container, 'resources', which);
    if (container['restartPolicy'] === 'Always') {
      sidecars = addAmounts(sidecars, own);
      peak = maxAmounts(peak, sidecars);
    } else peak = maxAmounts(peak, addAmounts(sidecars, own));
  }
  const whole = amountsAt(spec, 'resources', which);
  const all = { ...maxAmounts(addAmounts(running, sidecars), peak), ...whole };
  const overhead = amountsAt(spec, 'overhead');
  if (which === 'requests') return addAmounts(all, overhead);
  // Overhead adds to limits that are set, but sets none.
  const limited = Object.entries(overhead).filter(([name]) => Object.hasOwn(all, name));
  return addAmounts(all, Object.fromEntries(limited));
}
