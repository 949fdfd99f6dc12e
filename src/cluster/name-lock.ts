import { createHash } from 'node:crypto';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { inNetns, type NetnsRef } from '../kernel/netns.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { stateRoot } from './state.ts';

/**
 * Exclusive roles for a cluster's name on this machine. Each is an abstract Unix socket (unix(7)): the kernel releases
 * it when its process ends for any reason, and no file remains.
 */
export type Role = 'up' | 'supervisor' | 'planner';

/** A role that this process holds. */
export interface HeldRole {
  release(): void;
}

/** The holder of a role. */
export interface RoleHolder {
  readonly pid: number;
  readonly command: string;
  /** ISO time. */
  readonly since: string;
}

/** The role of the process that plans a cluster is one for all names; no name is empty. */
const EVERY_CLUSTER = '';
/** How long to wait for another process that plans a cluster, and how often to look: it takes milliseconds. */
const PLANNER_MS = 30_000;
const PLANNER_ROUND_MS = 5;

/** A longer message is invalid: any user of this machine may connect. */
const MAX_MESSAGE_BYTES = 4096;

/**
 * Acquires a role; returns null if another process holds it. The holder identifies itself to every process that
 * connects. `onMessage` receives the first line that the peer sends, as JSON; other lines are ignored.
 */
export async function takeRole(
  role: Role,
  cluster: string,
  command: string,
  onMessage: (message: unknown, socket: Socket) => void = () => {},
): Promise<HeldRole | null> {
  const holder: RoleHolder = { pid: process.pid, command, since: new Date().toISOString() };
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    // The peer has disconnected.
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    socket.write(`${JSON.stringify(holder)}\n`);
    void firstLine(socket).then((line) => {
      const message = line === null ? null : parseMessage(line);
      if (message !== null) onMessage(message, socket);
    });
  });
  if (!(await listen(server, address(role, cluster)))) return null;
  server.unref();
  return {
    release() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/**
 * Connects to the holder of a role; returns null if there is none. `netns`: the network namespace of the holder, if it is
 * not this process's: abstract sockets belong to one (unix(7)).
 */
export async function connectToRole(
  role: Role,
  cluster: string,
  netns: NetnsRef | null = null,
): Promise<{ readonly holder: RoleHolder; readonly socket: Socket } | null> {
  // The kernel's socket is created by this call.
  const connect = () => createConnection(address(role, cluster));
  const socket = inNetns(netns, connect);
  const failed = new Promise<null>((resolve, reject) => {
    socket.on('error', (error) => {
      if (hasCode(error, 'ECONNREFUSED', 'ECONNRESET', 'EPIPE')) resolve(null);
      else reject(error);
    });
  });
  const line = await Promise.race([firstLine(socket), failed]);
  const holder = line === null ? null : parseMessage(line);
  if (holder !== null) return { holder: holder as RoleHolder, socket };
  socket.destroy();
  return null;
}

/** Locks a cluster for changes until the lock is released. Throws FairleadError that names the holder. */
export async function lockCluster(cluster: string, command: string): Promise<HeldRole> {
  for (;;) {
    const held = await takeRole('up', cluster, command);
    if (held) return held;
    const other = await connectToRole('up', cluster);
    if (!other) continue;
    other.socket.destroy();
    const { pid, command: theirs, since } = other.holder;
    throw new FairleadError(
      `cluster ${cluster} is locked by "${theirs}" (process ${pid}, since ${since.slice(11, 19)} UTC)`,
      { op: command, code: 'locked', hint: `wait until it is ready, or stop it: kill ${pid}` },
    );
  }
}

/**
 * Calls `plan` while no other process plans a cluster, and returns its result: what it reads of the other clusters and records of
 * its own cannot be planned twice, such as ports and networks. Throws FairleadError if another process does not finish; rejects with
 * the signal's reason if it aborts while this process waits.
 */
export async function planAlone<T>(command: string, plan: () => T, signal?: AbortSignal): Promise<T> {
  const deadline = performance.now() + PLANNER_MS;
  for (;;) {
    signal?.throwIfAborted();
    const held = await takeRole('planner', EVERY_CLUSTER, command);
    if (held) {
      try {
        return plan();
      } finally {
        held.release();
      }
    }
    if (performance.now() > deadline) {
      const other = await connectToRole('planner', EVERY_CLUSTER);
      other?.socket.destroy();
      throw new FairleadError(`another process has been planning a cluster for ${PLANNER_MS / 1000} s`, {
        op: command,
        code: 'locked',
        ...(other ? { hint: `if it hangs, stop it: kill ${other.holder.pid}` } : {}),
      });
    }
    await new Promise((resolve) => setTimeout(resolve, PLANNER_ROUND_MS));
  }
}

function address(role: Role, cluster: string): string {
  const root = createHash('sha256').update(stateRoot()).digest('hex').slice(0, 16);
  return `\0fairlead/${root}/${cluster}/${role}`;
}

function listen(server: Server, path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    server.once('error', (error) => (hasCode(error, 'EADDRINUSE') ? resolve(false) : reject(error)));
    server.listen({ path }, () => resolve(true));
  });
}

/** Reads the first line; returns null if the socket was closed or the line is too long. */
function firstLine(socket: Socket): Promise<string | null> {
  return new Promise((resolve) => {
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      if (text.length <= MAX_MESSAGE_BYTES) text += chunk;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(text.slice(0, end));
      else if (text.length > MAX_MESSAGE_BYTES) resolve(null);
    });
    socket.once('close', () => resolve(null));
  });
}

function parseMessage(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
