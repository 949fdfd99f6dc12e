import { formatAddress, type IPFamily } from '../lib/address.ts';
import { libc } from './libc.ts';
import { AF_INET, AF_INET6, SOL_SOCKET } from './socket-numbers.ts';

// asm-generic/socket.h, bits/socket.h
const SO_TYPE = 3;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
/** SD_LISTEN_FDS_START of sd_listen_fds(3). */
const FIRST_DESCRIPTOR = 3;

/** A bound socket that another process has too. */
export interface PassedSocket {
  readonly fd: number;
  readonly transport: 'udp' | 'tcp';
  readonly family: IPFamily;
  readonly address: string;
  readonly port: number;
}

/**
 * Returns the sockets that a supervisor keeps open and passes to each process that it starts, by the protocol of systemd
 * (sd_listen_fds(3)): LISTEN_FDS descriptors from 3 on. Removes the variables from the environment, because an OCI runtime
 * would pass the descriptors on to containers.
 */
export function takePassedSockets(
  environment: NodeJS.ProcessEnv = process.env,
  pid = process.pid,
): PassedSocket[] {
  const count = Number(environment['LISTEN_FDS'] ?? 0);
  const receiver = environment['LISTEN_PID'];
  for (const name of ['LISTEN_FDS', 'LISTEN_PID', 'LISTEN_FDNAMES']) delete environment[name];
  if (!Number.isInteger(count) || (receiver !== undefined && receiver !== String(pid))) return [];
  return Array.from({ length: count }, (_, i) => describe(FIRST_DESCRIPTOR + i)).filter(
    (one) => one !== null,
  );
}

/** Returns what a descriptor is; null: not a socket of the Internet protocols. */
function describe(fd: number): PassedSocket | null {
  const type = new Uint8Array(4);
  if (libc().getsockopt(fd, SOL_SOCKET, SO_TYPE, type, Uint8Array.of(4, 0, 0, 0)) !== 0) return null;
  const transport = type[0] === SOCK_STREAM ? 'tcp' : type[0] === SOCK_DGRAM ? 'udp' : null;
  const place = new Uint8Array(28);
  if (transport === null || libc().getsockname(fd, place, Uint8Array.of(28, 0, 0, 0)) !== 0) return null;
  const view = new DataView(place.buffer);
  const family = view.getUint16(0, true);
  if (family !== AF_INET && family !== AF_INET6) return null;
  const address = formatAddress(family === AF_INET ? place.subarray(4, 8) : place.subarray(8, 24));
  return { fd, transport, family: family === AF_INET ? 'ipv4' : 'ipv6', address, port: view.getUint16(2) };
}
