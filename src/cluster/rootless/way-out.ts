import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, mkdirSync, readlinkSync, rmSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { readEnd } from '../../kernel/bounded-file.ts';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../../kernel/process-identity.ts';
import { findProgram } from '../../kernel/program-path.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { namespacesFolder } from './holder.ts';

/** The program that carries packets of a user's namespaces to the network of the machine, by connections of its own. */
const PROGRAM = 'slirp4netns';
const TUN = '/dev/net/tun';
const DEVICE = 'tap0';
const MTU = 65_520;
/** The first address of slirp4netns' network that is a name server: it asks the machine's, also those on loopback. */
export const WAY_OUT_NAME_SERVER = '10.0.2.3';
/** The last words of the program, if it does not start. */
const MAX_REASON_BYTES = 500;
/**
 * What it prints depends on the packets of pods: the file of its messages does not grow beyond 64 KiB, in blocks of 512 bytes, and
 * a signal about that does not end it.
 */
const BOUNDED = `trap '' XFSZ; ulimit -f 128; log=$1; shift; exec "$@" >"$log" 2>&1`;

/** The contents of way-out.json. */
interface WayOut {
  readonly process: ProcessIdentity;
  /** The network namespace that it serves, as in /proc/PID/ns. */
  readonly netns: string;
  /** Addresses of the machine itself, which pods must not reach by it. */
  readonly machineAddresses: readonly string[];
}

const recordFile = () => join(namespacesFolder(), 'way-out.json');

/** Returns why a user's clusters cannot reach external networks, and the fix; null: nothing is known to prevent it. */
export function wayOutObstacle(): { readonly reason: string; readonly fix: string } | null {
  if (findProgram(PROGRAM) === null)
    return {
      reason: `it needs ${PROGRAM}, which is not installed`,
      fix: `install it (Debian: sudo apt-get install ${PROGRAM})`,
    };
  try {
    accessSync(TUN, constants.R_OK | constants.W_OK);
    return null;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENXIO', 'ENODEV'))
      return { reason: `this machine has no ${TUN}`, fix: 'sudo modprobe tun' };
    return { reason: `it needs ${TUN}, which this user may not open`, fix: `sudo chmod 666 ${TUN}` };
  }
}

/**
 * Connects the namespaces of a process with the network of this one, if they are not yet: pods then reach what this user
 * reaches, but not the machine's loopback. Throws FairleadError.
 */
export async function openWayOut(holder: number): Promise<void> {
  const netns = readlinkSync(`/proc/${holder}/ns/net`);
  const known = readWayOut();
  if (known?.netns === netns && isRunning(known.process)) return;
  closeWayOut();
  const folder = namespacesFolder();
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const log = join(folder, 'way-out.log');
  const child = spawn(
    'sh',
    [
      ...['-c', BOUNDED, 'sh', log, PROGRAM, '--configure', `--mtu=${MTU}`],
      ...['--disable-host-loopback', '--enable-sandbox', '--enable-seccomp'],
      ...['--ready-fd=3', String(holder), DEVICE],
    ],
    // It outlives this command and its terminal.
    { detached: true, cwd: '/', stdio: ['ignore', 'ignore', 'ignore', 'pipe'] },
  );
  child.unref();
  const ready = child.stdio[3] as Readable;
  const isReady = await Promise.race([
    once(ready, 'data').then(() => true),
    once(child, 'exit').then(() => false),
  ]);
  ready.destroy();
  const process = identify(child.pid ?? 0);
  if (!isReady || !process) throw failed(log);
  const machineAddresses = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal }) => !internal)
    .map(({ address }) => address);
  replaceFile(recordFile(), JSON.stringify({ process, netns, machineAddresses } satisfies WayOut));
}

function failed(log: string): FairleadError {
  const reason = readEnd(log, MAX_REASON_BYTES).toString('utf8').trim().split('\n').slice(-2).join('; ');
  return new FairleadError(`${PROGRAM} has not started: ${reason || 'it gave no reason'}`, {
    op: 'open egress',
    code: 'EIO',
    hint: 'start the cluster without --egress, or as root: sudo fairlead up',
  });
}

function readWayOut(): WayOut | null {
  const text = readOptionalFile(recordFile());
  return text === null ? null : (JSON.parse(text) as WayOut);
}

/** Returns the addresses of the machine when the way out was opened. */
export const wayOutMachineAddresses = (): readonly string[] => readWayOut()?.machineAddresses ?? [];

/** Ends the program, and with it the device in the namespaces. Idempotent. */
export function closeWayOut(): void {
  const known = readWayOut();
  if (known === null) return;
  signalProcess(known.process, 'SIGKILL');
  rmSync(recordFile(), { force: true });
}
