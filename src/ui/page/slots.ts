import { useRef } from 'preact/hooks';

/**
 * Gives each id of a list a slot number: the one that it had, else the lowest that is free. As keys of elements, slots let a
 * list of other members reuse the elements of the list before, which is several times faster than creating them.
 */
export function assignSlots(
  previous: ReadonlyMap<string, number>,
  ids: readonly string[],
): Map<string, number> {
  const slots = new Map<string, number>();
  const taken = new Set<number>();
  for (const id of ids) {
    const slot = previous.get(id);
    if (slot === undefined) continue;
    slots.set(id, slot);
    taken.add(slot);
  }
  let next = 0;
  for (const id of ids) {
    if (slots.has(id)) continue;
    while (taken.has(next)) next++;
    slots.set(id, next++);
  }
  return slots;
}

/** Returns the slot of an id of the list; members that stay in the list keep theirs. */
export function useSlots(ids: readonly string[]): (id: string) => number | undefined {
  const slots = useRef<ReadonlyMap<string, number>>(new Map());
  slots.current = assignSlots(slots.current, ids);
  const { current } = slots;
  return (id) => current.get(id);
}
