import type { Protocol } from '../../service/model.ts';

interface Backend {
  readonly number: number;
  users: number;
}

/**
 * A number for each endpoint in use, which is its place in the map of how endpoints fare. One endpoint of many
 * Services has one number.
 */
export class BackendNumbers {
  readonly #capacity: number;
  readonly #byKey = new Map<string, Backend>();
  readonly #free: number[] = [];
  #next = 0;
  /** Numbers that were given out since `takeFresh`. */
  #fresh: number[] = [];

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  static key(ip: string, port: number, protocol: Protocol): string {
    return `${ip} ${port} ${protocol}`;
  }

  /** The reverse of `key`. */
  static parse(key: string): { ip: string; port: number; protocol: Protocol } {
    const [ip = '', port, protocol] = key.split(' ');
    return { ip, port: Number(port), protocol: protocol as Protocol };
  }

  has(key: string): boolean {
    return this.#byKey.has(key);
  }

  numberOf(key: string): number | null {
    return this.#byKey.get(key)?.number ?? null;
  }

  /** The endpoint's number, or null when all are taken. Each call wants a `release`. */
  acquire(key: string): number | null {
    const known = this.#byKey.get(key);
    if (known) {
      known.users++;
      return known.number;
    }
    const number = this.#next < this.#capacity ? this.#next++ : this.#free.shift();
    if (number === undefined) return null;
    this.#byKey.set(key, { number, users: 1 });
    this.#fresh.push(number);
    return number;
  }

  /** True when that was the last user. */
  release(key: string): boolean {
    const backend = this.#byKey.get(key);
    if (!backend || --backend.users > 0) return false;
    this.#byKey.delete(key);
    this.#free.push(backend.number);
    return true;
  }

  /** Takes over the numbers that an earlier process gave out, before any others. */
  adopt(numbers: ReadonlyMap<string, number>): void {
    for (const [key, number] of numbers) {
      this.#byKey.set(key, { number, users: 0 });
      this.#next = Math.max(this.#next, number + 1);
    }
    const used = new Set(numbers.values());
    for (let number = 0; number < this.#next; number++) if (!used.has(number)) this.#free.push(number);
  }

  /** Forgets what was adopted and has no user, and names it. */
  dropUnused(): string[] {
    const dropped: string[] = [];
    for (const [key, { number, users }] of this.#byKey) {
      if (users > 0) continue;
      this.#byKey.delete(key);
      this.#free.push(number);
      dropped.push(key);
    }
    return dropped;
  }

  /** Numbers that mean another endpoint than before: their entries are to be cleared. */
  takeFresh(): readonly number[] {
    const fresh = this.#fresh;
    this.#fresh = [];
    return fresh;
  }
}
