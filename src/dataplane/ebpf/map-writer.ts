import { ElementBuffer } from '../../kernel/bpf/element-buffer.ts';
import { ENDPOINT_WORDS, FRONTEND_KEY_WORDS, FRONTEND_WORDS } from './entries.ts';
import { BACKEND, FRONTEND_KEY, MEMBER, MEMBERSHIP } from './generated/layout.ts';
import { memberKeys, type PlacedFrontend, renderFrontend, renderRun, runsOf } from './render.ts';

export type WrittenMap = 'backends' | 'endpoints' | 'members' | 'frontends' | 'removed_backends';

/** Receives the writes of a change, in the order for the kernel. */
export interface Sink {
  /** Writes the elements and empties the buffer. */
  write(map: WrittenMap, elements: ElementBuffer): void;
  delete(map: 'frontends' | 'members' | 'removed_backends', keys: readonly Uint8Array[]): void;
}

/** A frontend as the maps have it, and as they should; null: it has no entries. */
export interface Replacement {
  readonly before: PlacedFrontend | null;
  readonly after: PlacedFrontend | null;
}

/** The writes of one change. */
export interface MapChange {
  readonly frontends: readonly Replacement[];
  /** Numbers that endpoints took from others: their state is reset, with the generation from which they count on. */
  readonly reused: readonly number[];
  readonly generation: number;
  /** Keys of entries that an earlier process left. */
  readonly leftFrontends: readonly Uint8Array[];
  readonly leftMembers: readonly Uint8Array[];
}

/**
 * Writes the entries in which frontends differ from the maps' contents, ordered so that no program sees a partial change:
 * slots and members first, then frontends, then deletions. A run is written once, by the frontend that it was allocated for.
 */
export class MapWriter {
  readonly #slots = new ElementBuffer(1, ENDPOINT_WORDS, 1024);
  readonly #members = new ElementBuffer(MEMBER.size / 4, MEMBERSHIP.size / 4);
  readonly #backends = new ElementBuffer(1, BACKEND.size / 4);
  readonly #frontends = new ElementBuffer(FRONTEND_KEY_WORDS, FRONTEND_WORDS);

  /** Returns the number of elements written and deleted. */
  write(change: MapChange, sink: Sink): number {
    this.#slots.reserve(newSlots(change.frontends));
    const frontendDeletes = [...change.leftFrontends];
    const memberDeletes = [...change.leftMembers];
    for (const { before, after } of change.frontends) {
      const there = runsOf(before);
      const wanted = runsOf(after);
      for (const run of wanted) if (after && !there.includes(run)) this.#addRun(renderRun(run, after.id));
      for (const run of there) if (!wanted.includes(run)) memberDeletes.push(...memberKeys(run));
      const entry = after && renderFrontend(after);
      const written = before && renderFrontend(before);
      if (!entry) {
        if (written) frontendDeletes.push(new Uint8Array(written.buffer, 0, FRONTEND_KEY.size));
      } else if (!written || !isSame(written, entry)) this.#frontends.addWords(entry);
    }
    for (const [i, number] of change.reused.entries()) {
      const index = this.#backends.add(1);
      this.#backends.keys[index] = number;
      this.#backends.values[(index * BACKEND.size + BACKEND.generation) / 4] = change.generation + i;
    }
    const writes = {
      backends: this.#backends,
      endpoints: this.#slots,
      members: this.#members,
      frontends: this.#frontends,
    };
    let operations = frontendDeletes.length + memberDeletes.length;
    for (const [map, elements] of Object.entries(writes)) {
      operations += elements.count;
      sink.write(map as WrittenMap, elements);
    }
    sink.delete('frontends', frontendDeletes);
    sink.delete('members', memberDeletes);
    return operations;
  }

  /** Frees the memory that a large change needed. */
  trim(): void {
    this.#slots.trim();
  }

  #addRun({ first, slots, members }: ReturnType<typeof renderRun>): void {
    const count = slots.length / ENDPOINT_WORDS;
    const index = this.#slots.add(count);
    this.#slots.values.set(slots, index * ENDPOINT_WORDS);
    for (let i = 0; i < count; i++) this.#slots.keys[index + i] = first + i;
    for (const [key, value] of members) this.#members.addBytes(key, value);
  }
}

/** Counts the slots to write, so that the buffer grows once. */
function newSlots(frontends: readonly Replacement[]): number {
  let count = 0;
  for (const { before, after } of frontends) {
    const there = runsOf(before);
    for (const run of runsOf(after)) if (!there.includes(run)) count += run.slots.length;
  }
  return count;
}

function isSame(a: Uint32Array, b: Uint32Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
