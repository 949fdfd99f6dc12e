import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, mkdirSync, readlinkSync, rmSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { readEnd } from '../../kernel/bounded-file.ts';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { identify, isRunning, type ProcessIdentity, signalProcess } from '../../kernel/process-identity.ts';
import { findProgram } from '../../kernel/program-path.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { namespacesFolder } from './holder.ts';

/** A program that carries packets of a user's namespaces to the network of the machine, by connections of its own. */
interface Carrier {
  readonly program: string;
  /** `pidFile`: for a program that ends when another process of it is ready. */
  readonly words: (holder: number, pidFile: string) => readonly string[];
  readonly isDaemon: boolean;
}

const TUN = '/dev/net/tun';
const DEVICE = 'tap0';
const MTU = '65520';
/** A name server that the programs answer for, by asking the machine's, also those on loopback; it is slirp4netns' own. */
export const WAY_OUT_NAME_SERVER = '10.0.2.3';
/** The last words of the program, if it does not start. */
const MAX_REASON_BYTES = 500;
/** How long it may take to start. */
const START_MS = 20_000;

/** The first that is installed is used. Both leave the machine's loopback closed. */
const CARRIERS: readonly Carrier[] = [
  {
    program: 'slirp4netns',
    words: (holder) => [
      ...['--configure', `--mtu=${MTU}`, '--disable-host-loopback', '--enable-sandbox', '--enable-seccomp'],
      ...['--ready-fd=3', String(holder), DEVICE],
    ],
    isDaemon: false,
  },
  {
    program: 'pasta',
    words: (holder, pidFile) => [
      ...['--config-net', '--ipv4-only', '--ns-ifname', DEVICE, '--mtu', MTU, '--quiet'],
      // No ports of the machine lead into the namespaces, nor ports of those to the machine's loopback.
      ...['--no-map-gw', '-t', 'none', '-u', 'none', '-T', 'none', '-U', 'none'],
      ...['--dns-forward', WAY_OUT_NAME_SERVER, '--pid', pidFile, String(holder)],
    ],
    isDaemon: true,
  },
];

/**
 * Its output depends on the packets of pods: the file of its messages does not grow beyond 64 KiB, in blocks of 512 bytes, and
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
  if (installedCarrier() === null)
    return {
      reason: 'it needs slirp4netns or pasta, neither of which is installed',
      fix: 'install one (Debian: sudo apt-get install slirp4netns)',
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

const installedCarrier = () => CARRIERS.find(({ program }) => findProgram(program) !== null) ?? null;

/**
 * Connects the namespaces of a process with the network of this one, if they are not yet: pods then reach what this user
 * reaches, but not the machine's loopback. Throws FairleadError.
 */
export async function openWayOut(holder: number): Promise<void> {
  const netns = readlinkSync(`/proc/${holder}/ns/net`);
  const known = readWayOut();
  if (known?.netns === netns && isRunning(known.process)) return;
  closeWayOut();
  const carrier = installedCarrier();
  if (carrier === null) throw failed('slirp4netns', 'it is not installed');
  const process = await startCarrier(carrier, holder);
  const machineAddresses = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal }) => !internal)
    .map(({ address }) => address);
  replaceFile(recordFile(), JSON.stringify({ process, netns, machineAddresses } satisfies WayOut));
}

async function startCarrier({ program, words, isDaemon }: Carrier, holder: number): Promise<ProcessIdentity> {
  const folder = namespacesFolder();
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const log = join(folder, 'way-out.log');
  const pidFile = join(folder, 'way-out.pid');
  const child = spawn(
    'sh',
    ['-c', BOUNDED, 'sh', log, program, ...words(holder, pidFile)],
    // It outlives this command and its terminal.
    { detached: true, cwd: '/', stdio: ['ignore', 'ignore', 'ignore', 'pipe'] },
  );
  child.unref();
  const ready = child.stdio[3] as Readable;
  const isReady = await Promise.race([
    once(ready, 'data').then(() => true),
    once(child, 'exit').then(([status]: unknown[]) => isDaemon && status === 0),
    setTimeout(START_MS, false, { ref: false }),
  ]);
  if (!isReady) child.kill('SIGKILL');
  ready.destroy();
  const pid = isDaemon ? Number(readOptionalFile(pidFile)) : (child.pid ?? 0);
  rmSync(pidFile, { force: true });
  const started = isReady ? identify(pid) : null;
  if (started) return started;
  throw failed(
    program,
    readEnd(log, MAX_REASON_BYTES).toString('utf8').trim().split('\n').slice(-2).join('; '),
  );
}

function failed(program: string, reason: string): FairleadError {
  return new FairleadError(`${program} has not started: ${reason || 'it gave no reason'}`, {
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
