import { Attributes, bpf, COMMAND } from './syscall.ts';

// Documentation/bpf/btf.rst
const BTF_MAGIC = 0xeb9f;
const HEADER_LENGTH = 24;
const KIND_INT = 1;
const KIND_ARRAY = 3;

/**
 * Loads the minimal type information (BTF) that socket storage needs: an int as the key, an array of ints as the value. The
 * caller closes the descriptor.
 */
export function loadStorageTypes(valueSize: number): { fd: number; key: number; value: number } {
  const key = 1;
  const value = 2;
  const strings = Buffer.from('\0int\0');
  const types = Uint32Array.from([
    // struct btf_type: name, info (kind << 24), size; then the integer's encoding: signed, 32 bits
    ...[1, KIND_INT << 24, 4, (1 << 24) | 32],
    // no name, no size; then struct btf_array: element, index, count
    ...[0, KIND_ARRAY << 24, 0, key, key, valueSize / 4],
  ]);
  const btf = new Uint8Array(HEADER_LENGTH + types.byteLength + strings.length);
  const view = new DataView(btf.buffer);
  view.setUint16(0, BTF_MAGIC, true);
  view.setUint8(2, 1);
  view.setUint32(4, HEADER_LENGTH, true);
  view.setUint32(8, 0, true);
  view.setUint32(12, types.byteLength, true);
  view.setUint32(16, types.byteLength, true);
  view.setUint32(20, strings.length, true);
  btf.set(new Uint8Array(types.buffer), HEADER_LENGTH);
  btf.set(strings, HEADER_LENGTH + types.byteLength);
  const attributes = new Attributes(32).pointer(0, btf).u32(16, btf.length);
  return { fd: bpf(COMMAND.btfLoad, attributes, 'load BPF type information'), key, value };
}
