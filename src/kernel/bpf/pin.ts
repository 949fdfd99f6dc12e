import { mkdirSync, readdirSync, readFileSync, statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { hasCode } from '../../lib/errors.ts';
import { errnoName, libc, systemError } from '../libc.ts';
import { removeOptionalFile } from '../optional-file.ts';
import { Attributes, bpf, bpfError, COMMAND, tryBpf, zeroTerminated } from './syscall.ts';

// linux/magic.h
const BPF_FS_MAGIC = 0xcafe4a11;
const STANDARD_MOUNT = '/sys/fs/bpf';
/** Files that the kernel puts into every BPF file system (CONFIG_BPF_PRELOAD). */
const PRELOADED = ['maps.debug', 'progs.debug'];
/** Identifies our mounts by their source. */
const MOUNT_SOURCE = 'fairlead';

/** Pins a map, program or link under a path in a BPF file system. */
export function pin(fd: number, path: string): void {
  bpf(COMMAND.pin, new Attributes(16).pointer(0, zeroTerminated(path)).u32(8, fd), 'pin BPF object', path);
}

/** Opens a pinned object; returns null if there is none. The caller closes the descriptor. */
export function openPin(path: string): number | null {
  const fd = tryBpf(COMMAND.openPin, new Attributes(16).pointer(0, zeroTerminated(path)));
  if (fd >= 0) return fd;
  if (errnoName(libc().errno()) === 'ENOENT') return null;
  throw bpfError('open pinned BPF object', path);
}

/** Removes a pin. Returns true if it existed. */
export function unpin(path: string): boolean {
  return removeOptionalFile(path);
}

/**
 * Creates the directory `path` on a BPF file system. Mounts one if necessary: at /sys/fs/bpf for paths below it, else at
 * `path` itself.
 */
export function makePinDirectory(path: string): void {
  const below = path === STANDARD_MOUNT || path.startsWith(`${STANDARD_MOUNT}/`);
  const place = below ? STANDARD_MOUNT : path;
  if (below ? !isBpfFs(STANDARD_MOUNT) : !isBpfFs(dirname(path)) && !isBpfFs(path)) {
    if (!below) mkdirSync(path, { recursive: true, mode: 0o700 });
    if (libc().mount(MOUNT_SOURCE, place, 'bpf', 0, 'mode=0700') !== 0) {
      throw systemError('mount BPF file system', place, 'the kernel needs CONFIG_BPF_SYSCALL');
    }
  }
  mkdirSync(path, { recursive: true, mode: 0o700 });
}

/**
 * Unmounts the file system that `makePinDirectory` mounted for `path`, unless other programs have pins
 * there.
 */
export function unmountPinDirectory(path: string): void {
  const below = path.startsWith(`${STANDARD_MOUNT}/`);
  const place = below ? STANDARD_MOUNT : path;
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  // proc(5): field 5 is the mount point; after " - " come the file system's type and its source.
  const ours = mounts.some((line) => {
    const [fields = '', rest = ''] = line.split(' - ');
    const [type, source] = rest.split(' ');
    return fields.split(' ')[4] === place && type === 'bpf' && source === MOUNT_SOURCE;
  });
  // Unmounting removes all pins.
  if (!ours || readdirSync(place).some((name) => !PRELOADED.includes(name))) return;
  if (libc().umount2(place, 0) === 0) return;
  // EINVAL: the mount came from another mount namespace and is locked here (mount_namespaces(7)); it stays, without pins.
  if (!['EBUSY', 'EINVAL'].includes(errnoName(libc().errno())))
    throw systemError('unmount BPF file system', place);
}

function isBpfFs(path: string): boolean {
  try {
    return statfsSync(path).type === BPF_FS_MAGIC;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}
