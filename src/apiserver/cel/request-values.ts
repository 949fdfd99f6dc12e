import { setOwnMember } from '../../lib/own-member.ts';
import type { Json } from '../object.ts';
import { celMap } from './values.ts';

/**
 * Converts decoded JSON to CEL values: whole numbers become integers (bigint). Values of other types are not changed.
 */
export function toCel(value: unknown): unknown {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (Array.isArray(value)) return value.map(toCel);
  if (typeof value !== 'object' || value === null) return value;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return value;
  const result: Record<string, unknown> = {};
  for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(value))) {
    // Getters are variables that are computed on access.
    if (descriptor.get) Object.defineProperty(result, key, descriptor);
    else if (descriptor.value !== undefined) setOwnMember(result, key, toCel(descriptor.value));
  }
  return celMap(result);
}

/** Converts a CEL value to JSON. Throws TypeError for values without a JSON form. */
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
