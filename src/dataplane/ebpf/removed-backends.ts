import { ElementBuffer } from '../../kernel/bpf/element-buffer.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { BACKEND_KEY_WORDS } from './backend-numbers.ts';
import { bytesOfText, protocolOfKey, textOf } from './entries.ts';
import { MAPS } from './generated/layout.ts';
import type { Sink } from './map-writer.ts';

/** Removed UDP endpoints that sockets may still be connected to, and which of them the kernel's map does not have yet. */
export class RemovedBackends {
  /** Keys, the most recent last. */
  readonly #removed = new Set<string>();
  /** Keys that were added to `#removed`, or deleted from it, since the last write. */
  readonly #changed = new Set<string>();
  readonly #writes = new ElementBuffer(BACKEND_KEY_WORDS, 1);

  get size(): number {
    return this.#removed.size;
  }

  /** Adopts the keys in the kernel's map. */
  adopt(keys: readonly Uint8Array[]): void {
    for (const key of keys) this.#removed.add(textOf(key));
  }

  /** Adds an endpoint that no frontend uses any longer. */
  add(words: Uint32Array): void {
    if (protocolOfKey(words) !== PROTOCOL_NUMBER.UDP) return;
    const key = keyOf(words);
    this.#removed.delete(key);
    this.#removed.add(key);
    this.#changed.add(key);
  }

  /** Removes the endpoint with the key at word `at`: it is in use again. */
  restore(keys: Uint32Array, at: number): void {
    if (this.#removed.size === 0) return;
    const key = keyOf(keys.subarray(at, at + BACKEND_KEY_WORDS));
    if (this.#removed.delete(key)) this.#changed.add(key);
  }

  /** Writes the changes since the last call, and returns their number. */
  flush(sink: Sink): number {
    if (this.#changed.size === 0) return 0;
    for (const key of this.#removed) {
      if (this.#removed.size <= MAPS.removed_backends.maxEntries) break;
      this.#removed.delete(key);
      this.#changed.add(key);
    }
    const dropped: Uint8Array[] = [];
    for (const key of this.#changed) {
      if (this.#removed.has(key)) this.#writes.addBytes(bytesOfText(key), new Uint8Array(4));
      else dropped.push(bytesOfText(key));
    }
    const count = this.#changed.size;
    this.#changed.clear();
    sink.write('removed_backends', this.#writes);
    sink.delete('removed_backends', dropped);
    return count;
  }
}

const keyOf = ({ buffer, byteOffset, byteLength }: Uint32Array): string =>
  textOf(new Uint8Array(buffer, byteOffset, byteLength));
