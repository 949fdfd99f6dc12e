/**
 * Members of objects whose keys are written by others. A plain object inherits "constructor", "toString" and "__proto__":
 * reading such a key finds a member that was never set, and assigning "__proto__" changes the prototype.
 */

/** Returns an object's own member; undefined if it is absent or inherited. */
export function ownMember<V>(
  object: Readonly<Record<string, V>> | null | undefined,
  key: string,
): V | undefined {
  return object !== null && object !== undefined && Object.hasOwn(object, key) ? object[key] : undefined;
}

/** Sets an object's own member, also one named "__proto__". */
export function setOwnMember<V>(object: Record<string, V>, key: string, value: V): void {
  if (key !== '__proto__') object[key] = value;
  else Object.defineProperty(object, key, { value, enumerable: true, writable: true, configurable: true });
}
