import type { Json } from '../object.ts';

/** Decoded JSON as CEL values: whole numbers are integers (bigint). Values of other types stay as they are. */
export function toCel(value: unknown): unknown {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (Array.isArray(value)) return value.map(toCel);
  if (typeof value !== 'object' || value === null) return value;
  if (Object.getPrototypeOf(value) !== Object.prototype) return value;
  const result: Record<string, unknown> = {};
  for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(value))) {
    // Getters are variables that are computed when they are read.
    if (descriptor.get) Object.defineProperty(result, key, descriptor);
    else if (descriptor.value !== undefined) result[key] = toCel(descriptor.value);
  }
  return result;
}

/** A CEL value as JSON. Throws TypeError for values that JSON has no form for. */
export function fromCel(value: unknown): Json {
  if (value === null || typeof value === 'boolean' || typeof value === 'string' || typeof value === 'number')
    return value;
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(fromCel);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Map)
    return Object.fromEntries([...value].map(([key, item]) => [String(key), fromCel(item)]));
  if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype)
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fromCel(item)]));
  // The library's unsigned integers and optional values convert themselves.
  const plain: unknown = Object(value).valueOf();
  if (plain !== value) return fromCel(plain);
  throw new TypeError(`a value of type ${typeof value} cannot be written as JSON`);
}
