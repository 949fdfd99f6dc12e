import { BYTE_ORDER, UDATA_SET_DATA_BYTE_ORDER, UDATA_SET_KEY_BYTE_ORDER } from './constants.ts';

// Data that libnftnl stores with objects for programs that list them: type, length, bytes.

const text = new TextEncoder();

/** Returns a comment, terminated by a zero. */
export function commentUserdata(type: number, comment: string): Uint8Array {
  const bytes = text.encode(comment);
  const out = new Uint8Array(bytes.length + 3);
  out[0] = type;
  out[1] = bytes.length + 1;
  out.set(bytes, 2);
  return out;
}

/**
 * Returns the byte orders of a set. Without them `nft` prints numbers in the wrong order; 1.0.6 aborts on a
 * data order for verdicts.
 */
export function byteOrderUserdata(hasData: boolean): Uint8Array {
  const order = BYTE_ORDER.network;
  const key = [UDATA_SET_KEY_BYTE_ORDER, 4, order, 0, 0, 0];
  return Uint8Array.from(hasData ? [...key, UDATA_SET_DATA_BYTE_ORDER, 4, order, 0, 0, 0] : key);
}
