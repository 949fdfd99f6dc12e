/**
 * Returns the size of the map that contains a pool's endpoints: 1, 2, 3, 4, 6, 8, 12, 16, 24, … A pool of N
 * endpoints has slots 0 to N-1 in the map of the smallest class C ≥ N. A rule draws a slot below C; if the
 * pool has no endpoint there, the next rule draws again, and the last one draws below the previous class,
 * where every slot is filled. So a pool grows and shrinks within its class by changes of map elements
 * alone. Slots above the previous class get 1-(1-N/C)^3 of their fair share: at worst 3.7 % less.
 */
export function sizeClass(count: number): number {
  if (count <= 4) return Math.max(count, 1);
  let power = 4;
  while (power * 2 < count) power *= 2;
  return count <= power * 1.5 ? power * 1.5 : power * 2;
}

/** Returns the previous class, which every pool of class `size` exceeds. */
export function classBefore(size: number): number {
  if (size <= 4) return size - 1;
  const power = 2 ** Math.floor(Math.log2(size));
  return size === power ? power * 0.75 : power;
}
