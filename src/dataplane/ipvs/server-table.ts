import {
  describeServer,
  hostPort,
  type ServerId,
  type ShownRealServer,
  type VirtualServer,
} from '../../kernel/ipvs/codec.ts';
import type { IpvsBatch, IpvsConnection, IpvsRefusal } from '../../kernel/ipvs/connection.ts';
import { FORWARDING } from '../../kernel/ipvs/constants.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { FrontendKey } from '../../service/model.ts';
import type { Drift } from '../dataplane.ts';
import type { PlannedServer } from './frontend-plan.ts';

interface RealState {
  readonly address: string;
  readonly port: number;
  weight: number;
  /** When it stopped taking new connections, by the caller's clock; null: it takes them. */
  drainingSince: number | null;
}

interface ServerState {
  server: VirtualServer;
  /** The frontend that it is for; null once no frontend wants it, until its connections are closed. */
  owner: FrontendKey | null;
  readonly reals: Map<string, RealState>;
}

/** Commands that are sent together, and whom a refusal concerns. */
export interface Commands {
  readonly batch: IpvsBatch;
  readonly owners: (FrontendKey | null)[];
}

export const newCommands = (connection: IpvsConnection): Commands => ({
  batch: connection.batch(),
  owners: [],
});

/** Sends commands; returns the errors by frontend. */
export async function send(
  connection: IpvsConnection,
  commands: Commands,
  report: (owner: FrontendKey | null, error: FairleadError) => void,
): Promise<void> {
  for (const refusal of await connection.commit(commands.batch)) {
    report(commands.owners[refusal.index] ?? null, refusalError(refusal));
  }
}

function refusalError({ code, object }: IpvsRefusal): FairleadError {
  const hint =
    code === 'EEXIST'
      ? 'another program made it: remove it there, or keep that program from this address'
      : undefined;
  return new FairleadError(`IPVS refused to ${object}: ${code}`, {
    op: 'program IPVS',
    code,
    object,
    ...(hint === undefined ? {} : { hint }),
  });
}

export const serverKey = (id: ServerId): string =>
  'mark' in id ? `${id.family} ${id.mark}` : `${id.family} ${id.protocol} ${id.address} ${id.port}`;
const realKey = ({ address, port }: { address: string; port: number }) => `${address} ${port}`;

/**
 * The virtual servers that are Fairlead's as they are in the kernel. Methods note what becomes of the commands that
 * they write as if all of them were done.
 */
export class ServerTable {
  readonly #servers = new Map<string, ServerState>();
  /** Servers with real servers that wait for their connections to close. */
  readonly #draining = new Set<string>();

  /** Takes over a server that an earlier run left, or that `before`, an earlier table of this run, knows. */
  adopt(
    server: VirtualServer,
    reals: readonly ShownRealServer[],
    before: ServerTable | null,
    now: number,
  ): void {
    const key = serverKey(server.id);
    const known = before ? before.#servers.get(key)?.reals : undefined;
    const states = reals.map(({ address, port, weight }): [string, RealState] => {
      const since = known?.get(realKey({ address, port }))?.drainingSince ?? now;
      return [
        realKey({ address, port }),
        { address, port, weight, drainingSince: weight === 0 ? since : null },
      ];
    });
    this.#servers.set(key, { server, owner: null, reals: new Map(states) });
  }

  get ids(): ServerId[] {
    return [...this.#servers.values()].map(({ server }) => server.id);
  }

  has(id: ServerId): boolean {
    return this.#servers.has(serverKey(id));
  }

  get isDraining(): boolean {
    return this.#draining.size > 0;
  }

  /** Addresses of servers that wait for their connections to close, without a frontend. */
  heldAddresses(): Set<string> {
    const held = new Set<string>();
    for (const key of this.#draining) {
      const state = this.#servers.get(key);
      if (state && state.owner === null && 'address' in state.server.id) held.add(state.server.id.address);
    }
    return held;
  }

  /**
   * Makes a server what the plan says: additions into `add`, what ends into `remove`. `drains`: connections to real
   * servers that go are waited for.
   */
  set(
    planned: PlannedServer,
    owner: FrontendKey,
    drains: boolean,
    now: number,
    add: Commands,
    remove: Commands,
  ): void {
    const { server, endpoints, scheduler } = planned;
    const { id } = server;
    const key = serverKey(id);
    let state = this.#servers.get(key);
    if (!state) {
      state = { server, owner, reals: new Map() };
      this.#servers.set(key, state);
      add.batch.addServer(server);
      add.owners.push(owner);
    } else if (!sameServer(state.server, server)) {
      add.batch.changeServer(server);
      add.owners.push(owner);
    }
    state.server = server;
    state.owner = owner;
    const wanted = state.reals.size > 0 ? new Set<string>() : null;
    for (const { ip, port } of endpoints) {
      const real = `${ip} ${port}`;
      wanted?.add(real);
      const before = state.reals.get(real);
      if (before?.weight === scheduler.weight) {
        before.drainingSince = null;
        continue;
      }
      const next = { address: ip, port, weight: scheduler.weight };
      if (before) add.batch.changeRealServer(id, next);
      else add.batch.addRealServer(id, next);
      add.owners.push(owner);
      state.reals.set(real, { ...next, drainingSince: null });
    }
    const waits = drains && scheduler.passesOver;
    for (const [real, before] of state.reals) {
      if (wanted && !wanted.has(real)) this.#retire(state, real, before, waits, now, remove);
    }
    this.#noteDraining(key, state);
  }

  /** No frontend wants the server any more. True: it is gone with these commands; false: once it is idle. */
  drop(id: ServerId, drains: boolean, now: number, remove: Commands): boolean {
    const key = serverKey(id);
    const state = this.#servers.get(key);
    if (!state) return true;
    state.owner = null;
    if (drains)
      for (const [real, before] of state.reals) this.#retire(state, real, before, true, now, remove);
    if (!drains || state.reals.size === 0) {
      remove.batch.deleteServer(id);
      remove.owners.push(null);
      this.#servers.delete(key);
      this.#draining.delete(key);
      return true;
    }
    this.#noteDraining(key, state);
    return false;
  }

  /**
   * Deletes what has drained: real servers without connections, those that `isOver` says, and servers without a
   * frontend that have no real servers left. Returns the servers deleted.
   */
  collect(
    read: (id: ServerId) => readonly ShownRealServer[],
    isOver: (real: RealState) => boolean,
    remove: Commands,
  ): ServerId[] {
    const deleted: ServerId[] = [];
    for (const key of [...this.#draining]) {
      const state = this.#servers.get(key);
      if (!state) continue;
      const { id } = state.server;
      const shown = new Map(read(id).map((real) => [realKey(real), real]));
      for (const [real, draining] of state.reals) {
        if (draining.drainingSince === null) continue;
        const now = shown.get(real);
        if (now && now.activeConnections + now.inactiveConnections > 0 && !isOver(draining)) continue;
        if (now) {
          remove.batch.deleteRealServer(id, draining);
          remove.owners.push(state.owner);
        }
        state.reals.delete(real);
      }
      if (state.owner === null && state.reals.size === 0) {
        remove.batch.deleteServer(id);
        remove.owners.push(null);
        this.#servers.delete(key);
        deleted.push(id);
      }
      this.#noteDraining(key, state);
    }
    return deleted;
  }

  /** Compares with the kernel's servers. `isOurs` tells which of them Fairlead made. */
  compare(
    shown: readonly VirtualServer[],
    read: (id: ServerId) => readonly ShownRealServer[],
    isOurs: (id: ServerId) => boolean,
  ): Drift[] {
    const drifts: Drift[] = [];
    const seen = new Set<string>();
    for (const server of shown) {
      const key = serverKey(server.id);
      const object = `virtual server ${describeServer(server.id)}`;
      const state = this.#servers.get(key);
      if (!state) {
        if (isOurs(server.id)) drifts.push({ object, kind: 'unexpected' });
        continue;
      }
      seen.add(key);
      if (!sameServer(server, state.server)) drifts.push({ object, kind: 'different' });
      drifts.push(...compareReals(object, state.reals, read(server.id)));
    }
    for (const [key, { server }] of this.#servers) {
      if (!seen.has(key)) {
        drifts.push({ object: `virtual server ${describeServer(server.id)}`, kind: 'missing' });
      }
    }
    return drifts;
  }

  #retire(
    state: ServerState,
    key: string,
    real: RealState,
    waits: boolean,
    now: number,
    remove: Commands,
  ): void {
    const { id } = state.server;
    if (!waits) {
      remove.batch.deleteRealServer(id, real);
      remove.owners.push(state.owner);
      state.reals.delete(key);
      return;
    }
    if (real.weight !== 0) {
      remove.batch.changeRealServer(id, { ...real, weight: 0 });
      remove.owners.push(state.owner);
    }
    real.weight = 0;
    real.drainingSince ??= now;
  }

  #noteDraining(key: string, state: ServerState): void {
    const exists = this.#servers.get(key) === state;
    const waits = state.owner === null || [...state.reals.values()].some((r) => r.drainingSince !== null);
    if (exists && waits) this.#draining.add(key);
    else this.#draining.delete(key);
  }
}

function compareReals(
  server: string,
  expected: ReadonlyMap<string, RealState>,
  shown: readonly ShownRealServer[],
): Drift[] {
  const drifts: Drift[] = [];
  const seen = new Set<string>();
  for (const real of shown) {
    const object = `${server} real server ${hostPort(real)}`;
    const state = expected.get(realKey(real));
    seen.add(realKey(real));
    if (!state) drifts.push({ object, kind: 'unexpected' });
    else if (state.weight !== real.weight || real.forwarding !== FORWARDING.masquerade) {
      drifts.push({ object, kind: 'different' });
    }
  }
  for (const [key, real] of expected) {
    if (!seen.has(key)) drifts.push({ object: `${server} real server ${hostPort(real)}`, kind: 'missing' });
  }
  return drifts;
}

const sameServer = (a: VirtualServer, b: VirtualServer): boolean =>
  a.scheduler === b.scheduler &&
  a.schedulerFlags === b.schedulerFlags &&
  a.persistenceSeconds === b.persistenceSeconds;
