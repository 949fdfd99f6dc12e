import { existsSync, statSync } from 'node:fs';
import { type BpfLink, keepLink, type LinkInfo, linkCgroup, linkInfo } from '../../kernel/bpf/link.ts';
import { readObject, relocate } from '../../kernel/bpf/object.ts';
import { unpin } from '../../kernel/bpf/pin.ts';
import { type AttachPoint, type BpfProgram, loadProgramAsync } from '../../kernel/bpf/program.ts';
import { controlGroupRoot, NODE_CONTROL_GROUPS } from '../../kernel/control-group.ts';
import { FairleadError } from '../../lib/errors.ts';
import { OBJECT as FAILOVER } from './generated/failover.ts';
import { OBJECT as SOCKET_LB } from './generated/socket-lb.ts';
import { cgroupHooks, type DeviceHook, HOOKS } from './hooks.ts';
import type { Maps } from './maps.ts';
import { linkPin, removeLinks } from './pins.ts';

export interface Programs {
  /** The programs for the control group. */
  readonly sockets: ReadonlyMap<AttachPoint, BpfProgram>;
  readonly devices: ReadonlyMap<DeviceHook, BpfProgram>;
}
export type Links = ReadonlyMap<AttachPoint, BpfLink>;

/**
 * Loads all programs with these maps, or none, several at a time: the verifier uses one processor for each. Throws
 * FairleadError with the verifier's log.
 */
export async function loadPrograms(maps: Maps): Promise<Programs> {
  const descriptors = new Map(Object.entries(maps).map(([name, map]) => [name, map.fd]));
  const loads = [SOCKET_LB, FAILOVER].flatMap((text) => {
    const { license, programs } = readObject(Buffer.from(text, 'base64'));
    return programs.flatMap((program) => {
      const hook = HOOKS[program.section];
      if (!hook) return [];
      const { name } = program;
      const source = { name, type: hook.type, instructions: relocate(program, descriptors), license };
      // Programs of type tc get their attach point only when they are attached.
      const place = hook.place === 'device' ? {} : { attach: hook.attach };
      return [{ hook, loading: loadProgramAsync({ ...source, ...place }) }];
    });
  });
  const sockets = new Map<AttachPoint, BpfProgram>();
  const devices = new Map<DeviceHook, BpfProgram>();
  const results = await Promise.allSettled(loads.map(({ loading }) => loading));
  for (const [i, { hook }] of loads.entries()) {
    const result = results[i];
    if (result?.status !== 'fulfilled') continue;
    if (hook.place === 'device') devices.set(hook.attach, result.value);
    else sockets.set(hook.attach, result.value);
  }
  const failure = results.find((result) => result.status === 'rejected');
  if (!failure) return { sockets, devices };
  closePrograms({ sockets, devices });
  throw failure.reason;
}

export function closePrograms({ sockets, devices }: Programs): void {
  for (const program of [...sockets.values(), ...devices.values()]) program.close();
}

/** Returns the root of the cgroup v2 hierarchy. Throws FairleadError if there is none. */
export function defaultControlGroup(): string {
  const root = controlGroupRoot();
  if (root !== null) return root;
  throw new FairleadError('no cgroup v2 hierarchy below /sys/fs/cgroup', {
    op: 'start eBPF mode',
    code: 'missing-kernel-feature',
    hint: `mount it on the node (mount -t cgroup2 none /sys/fs/cgroup/unified) and, in a container, the node's /sys/fs/cgroup at ${NODE_CONTROL_GROUPS}; or use the nftables mode`,
  });
}

/**
 * Attaches the programs to a control group, each atomically replacing the one of an earlier process, and
 * removes those of hooks that are not in `wanted`. If one cannot be attached, detaches those attached so
 * far and throws.
 */
export function attachPrograms(
  { sockets }: Programs,
  cgroup: string,
  pinPath: string,
  wanted: ReadonlySet<AttachPoint>,
): Map<AttachPoint, BpfLink> {
  const links = new Map<AttachPoint, BpfLink>();
  const fresh: AttachPoint[] = [];
  try {
    for (const [hook, program] of sockets) {
      if (!wanted.has(hook)) {
        removeLinks(pinPath, (name) => name === hook);
        continue;
      }
      const { link, isFresh } = attachProgram(program, hook, cgroup, pinPath);
      links.set(hook, link);
      if (isFresh) fresh.push(hook);
    }
    return links;
  } catch (error) {
    for (const hook of fresh) unpin(linkPin(pinPath, hook));
    for (const link of links.values()) link.close();
    throw error;
  }
}

/** Attaches one program to a control group as `attachPrograms` does. */
export function attachProgram(program: BpfProgram, hook: AttachPoint, cgroup: string, pinPath: string) {
  const { ino } = statSync(cgroup, { bigint: true });
  // A link of another control group: that was removed, or belongs to another configuration.
  const isSame = ({ cgroupId }: LinkInfo) => cgroupId === ino;
  return keepLink(linkPin(pinPath, hook), program.fd, isSame, () => linkCgroup(program.fd, cgroup, hook));
}

/** Lists the hooks whose link is missing, belongs to another control group, or is not wanted. */
export function brokenLinks(
  links: Links,
  cgroup: string,
  pinPath: string,
  wanted: ReadonlySet<AttachPoint>,
): AttachPoint[] {
  const cgroupId = statSync(cgroup, { bigint: true, throwIfNoEntry: false })?.ino;
  return [...cgroupHooks(true)].filter((hook) => {
    const link = links.get(hook);
    const isPinned = existsSync(linkPin(pinPath, hook));
    if (!wanted.has(hook)) return isPinned;
    return !link || !isPinned || linkInfo(link.fd).cgroupId !== cgroupId;
  });
}
