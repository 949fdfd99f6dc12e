/** Six bytes. */
export type Mac = Uint8Array;

export const BROADCAST: Mac = Uint8Array.of(255, 255, 255, 255, 255, 255);

/** Returns an Ethernet header (IEEE 802.3) followed by a payload. */
export function ethernetFrame(to: Mac, from: Mac, ethertype: number, payload: Uint8Array): Uint8Array {
  const frame = new Uint8Array(14 + payload.length);
  frame.set(to, 0);
  frame.set(from, 6);
  frame[12] = ethertype >> 8;
  frame[13] = ethertype & 0xff;
  frame.set(payload, 14);
  return frame;
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
