import { libc } from './libc.ts';

/** Reused: each connection of a proxy sets several options. */
const bytes = new Uint8Array(new ArrayBuffer(4));
const view = new DataView(bytes.buffer);

/** Sets a socket option whose value is an int. Returns false with the reason in errno if the kernel refuses it. */
export function setSocketOption(fd: number, level: number, option: number, value: number): boolean {
  view.setUint32(0, value, true);
  return libc().setsockopt(fd, level, option, bytes, bytes.length) === 0;
}
