import type { ElementBuffer } from '../../kernel/bpf/element-buffer.ts';

export type WrittenMap = 'backends' | 'endpoints' | 'members' | 'frontends' | 'removed_backends';

/** Receives the writes of a change, in the order for the kernel. */
export interface Sink {
  /** Writes the elements and empties the buffer. */
  write(map: WrittenMap, elements: ElementBuffer): void;
  delete(map: 'frontends' | 'members' | 'removed_backends', keys: readonly Uint8Array[]): void;
}
