import {
  describeServer,
  type ServerId,
  type ShownRealServer,
  type VirtualServer,
} from '../../kernel/ipvs/codec.ts';
import type { IpvsBatch, IpvsConnection, IpvsRefusal } from '../../kernel/ipvs/connection.ts';
import { FORWARDING } from '../../kernel/ipvs/constants.ts';
import { hostPort } from '../../lib/address.ts';
import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { FrontendKey } from '../../service/model.ts';
import { type Drift, driftsBetween } from '../dataplane.ts';
import type { PlannedServer } from './frontend-plan.ts';
import { hasConnections } from './idle.ts';

interface RealState {
  readonly address: string;
  readonly port: number;
  weight: number;
  /**
   * The time at which it stopped accepting new connections, by the caller's clock; null: it accepts them.
   */
  drainingSince: number | null;
}

interface ServerState {
  server: VirtualServer;
  /** Its frontend; null while it only drains. */
  owner: FrontendKey | null;
  /** Unique by address and port. A list, since there are hundreds of thousands, of which few change. */
  reals: RealState[];
}

/** A batch of commands, and the frontend of each. */
export class Commands {
  readonly batch: IpvsBatch;
  readonly owners: (FrontendKey | null)[] = [];

  constructor(connection: Pick<IpvsConnection, 'batch'>) {
    this.batch = connection.batch();
  }

  /** Returns the batch, to which the caller adds one command for this frontend. */
  of(owner: FrontendKey | null): IpvsBatch {
    this.owners.push(owner);
    return this.batch;
  }
}

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
      ? 'another program created it: remove it there, or prevent that program from using this address'
      : undefined;
  return new FairleadError(`IPVS failed to ${object}: ${code}`, {
    op: 'program IPVS',
    code: errorCode(code),
    object,
    ...(hint === undefined ? {} : { hint }),
  });
}

export const serverKey = (id: ServerId): string =>
  'mark' in id ? `${id.family} ${id.mark}` : `${id.family} ${id.protocol} ${id.address} ${id.port}`;

/**
 * Orders servers for creation; they are deleted in the reverse order. The kernel keeps deleted real servers
 * for two minutes, the latest first, and searches them for each new one (dest_trash): in this order the
 * first one matches.
 */
export function serverOrder(a: ServerId, b: ServerId): number {
  if (a.family !== b.family) return a.family < b.family ? -1 : 1;
  const [atA, atB] = ['address' in a ? a : null, 'address' in b ? b : null];
  if (!atA || !atB) return Number(atA !== null) - Number(atB !== null) || markOf(a) - markOf(b);
  if (atA.address !== atB.address) return atA.address < atB.address ? -1 : 1;
  return atA.port - atB.port || atA.protocol - atB.protocol;
}

const markOf = (id: ServerId): number => ('mark' in id ? id.mark : 0);

interface RealId {
  readonly address: string;
  readonly port: number;
}
const realKey = ({ address, port }: RealId) => `${address} ${port}`;
const isSameReal = (a: RealId, b: RealId) => a.address === b.address && a.port === b.port;
const byKey = <T extends RealId>(reals: readonly T[]) => new Map(reals.map((real) => [realKey(real), real]));

/** Fairlead's virtual servers in the kernel. Methods record commands as executed when they append them to a batch. */
export class ServerTable {
  readonly #servers = new Map<string, ServerState>();
  /** Servers with real servers that wait for their connections to close. */
  readonly #draining = new Set<string>();

  /** Adopts a server from the kernel. `before`: the previous table of this process, with the start of each drain. */
  adopt(
    server: VirtualServer,
    reals: readonly ShownRealServer[],
    before: ServerTable | null,
    now: number,
  ): void {
    const key = serverKey(server.id);
    const known = before ? before.#servers.get(key)?.reals : undefined;
    const states = reals.map(({ address, port, weight }): RealState => {
      const since =
        weight > 0
          ? null
          : (known?.find((real) => isSameReal(real, { address, port }))?.drainingSince ?? now);
      return { address, port, weight, drainingSince: since };
    });
    this.#servers.set(key, { server, owner: null, reals: states });
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

  /** Returns the addresses of servers without a frontend that wait for their connections to close. */
  heldAddresses(): Set<string> {
    const held = new Set<string>();
    for (const key of this.#draining) {
      const state = this.#servers.get(key);
      if (state && state.owner === null && 'address' in state.server.id) held.add(state.server.id.address);
    }
    return held;
  }

  /**
   * Changes a server to the plan: appends additions to `add`, removals to `remove`. `drains`: removed real servers stay
   * until their connections are closed. Spared ones (UDP) stay, with weight 0, until the plan no longer lists them.
   */
  set(
    planned: PlannedServer,
    owner: FrontendKey,
    drains: boolean,
    now: number,
    add: Commands,
    remove: Commands,
  ): void {
    const { server, endpoints, spared, scheduler } = planned;
    const { id } = server;
    const key = serverKey(id);
    let state = this.#servers.get(key);
    if (!state) {
      state = { server, owner, reals: [] };
      this.#servers.set(key, state);
      add.of(owner).addServer(server);
    } else if (!sameServer(state.server, server)) {
      add.of(owner).changeServer(server);
    }
    state.server = server;
    state.owner = owner;
    const { weight } = scheduler;
    const left = state.reals.length > 0 ? byKey(state.reals) : null;
    state.reals = endpoints.map(({ ip, port }) => {
      const real = left?.get(realKey({ address: ip, port }));
      if (!real) {
        const added = { address: ip, port, weight, drainingSince: null };
        add.of(owner).addRealServer(id, added);
        return added;
      }
      left?.delete(realKey(real));
      real.drainingSince = null;
      this.#setWeight(state, real, weight, add);
      return real;
    });
    if (scheduler.skipsDraining) {
      for (const { ip, port } of spared) {
        const real = left?.get(realKey({ address: ip, port }));
        // An endpoint that was never a real server has no flows.
        if (!real) continue;
        left?.delete(realKey(real));
        real.drainingSince = null;
        this.#setWeight(state, real, 0, remove);
        state.reals.push(real);
      }
    }
    const waits = drains && scheduler.skipsDraining;
    for (const real of left?.values() ?? []) {
      if (!this.#retire(state, real, waits, now, remove)) state.reals.push(real);
    }
    this.#noteDraining(key, state);
  }

  /** Removes a server without a frontend. Returns true if these commands delete it, false if it is deleted when idle. */
  drop(id: ServerId, drains: boolean, now: number, remove: Commands): boolean {
    const key = serverKey(id);
    const state = this.#servers.get(key);
    if (!state) return true;
    state.owner = null;
    if (drains) for (const real of state.reals) this.#retire(state, real, true, now, remove);
    if (!drains || state.reals.length === 0) {
      remove.of(null).deleteServer(id);
      this.#servers.delete(key);
      this.#draining.delete(key);
      return true;
    }
    this.#noteDraining(key, state);
    return false;
  }

  /**
   * Deletes drained real servers: those without connections and those for which `isOver` is true; then servers without a
   * frontend and real servers. Returns the deleted servers.
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
      const shown = byKey(read(id));
      state.reals = state.reals.filter((real) => {
        if (real.drainingSince === null) return true;
        const now = shown.get(realKey(real));
        if (now && hasConnections(now) && !isOver(real)) return true;
        if (now) {
          remove.of(state.owner).deleteRealServer(id, real);
        }
        return false;
      });
      if (state.owner === null && state.reals.length === 0) {
        remove.of(null).deleteServer(id);
        this.#servers.delete(key);
        deleted.push(id);
      }
      this.#noteDraining(key, state);
    }
    return deleted;
  }

  /** Compares the table with the kernel's servers. `isOurs`: Fairlead created the server. */
  compare(
    shown: readonly VirtualServer[],
    read: (id: ServerId) => readonly ShownRealServer[],
    isOurs: (id: ServerId) => boolean,
  ): Drift[] {
    const wanted = new Map([...this.#servers].map(([key, { server }]) => [key, server]));
    const found = new Map(
      shown.filter(({ id }) => this.has(id) || isOurs(id)).map((server) => [serverKey(server.id), server]),
    );
    const nameOf = ({ id }: VirtualServer) => `virtual server ${describeServer(id)}`;
    const drifts = driftsBetween(wanted, found, (_key, server) => nameOf(server), sameServer);
    for (const [key, { server, reals }] of this.#servers) {
      if (!found.has(key)) continue;
      const isSame = (a: RealState, b: ShownRealServer) =>
        a.weight === b.weight && b.forwarding === FORWARDING.masquerade;
      const name = (_key: string, real: RealId) =>
        `${nameOf(server)} real server ${hostPort({ ip: real.address, port: real.port })}`;
      for (const drift of driftsBetween(byKey(reals), byKey(read(server.id)), name, isSame))
        drifts.push(drift);
    }
    return drifts;
  }

  /** Removes a real server. Returns true if these commands delete it, false if it is deleted when idle. */
  #retire(state: ServerState, real: RealState, waits: boolean, now: number, remove: Commands): boolean {
    const { id } = state.server;
    if (!waits) {
      remove.of(state.owner).deleteRealServer(id, real);
      return true;
    }
    this.#setWeight(state, real, 0, remove);
    real.drainingSince ??= now;
    return false;
  }

  #setWeight(state: ServerState, real: RealState, weight: number, commands: Commands): void {
    if (real.weight === weight) return;
    real.weight = weight;
    commands.of(state.owner).changeRealServer(state.server.id, real);
  }

  #noteDraining(key: string, state: ServerState): void {
    const exists = this.#servers.get(key) === state;
    const waits = state.owner === null || state.reals.some((real) => real.drainingSince !== null);
    if (exists && waits) this.#draining.add(key);
    else this.#draining.delete(key);
  }
}

const sameServer = (a: VirtualServer, b: VirtualServer): boolean =>
  a.scheduler === b.scheduler &&
  a.schedulerFlags === b.schedulerFlags &&
  a.persistenceSeconds === b.persistenceSeconds;
