import { join } from 'node:path';
import { type CharacterDevice, type DeviceFilter, loadDeviceFilter } from '../kernel/bpf/device-filter.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { ControlGroups } from './control-groups.ts';
import { KubeletError } from './kubelet-error.ts';

/** With it, root makes nodes of any device: of the machine's disks, too. */
const MAKES_DEVICES = 'CAP_MKNOD';

/** Devices of a container's /dev, terminals, and tunnels, which belong to a network namespace: as other runtimes allow. */
const ALLOWED: readonly CharacterDevice[] = [
  ...[3, 5, 7, 8, 9].map((minor) => ({ major: 1, minor })),
  ...[0, 2].map((minor) => ({ major: 5, minor })),
  // Unix98 terminals (Documentation/admin-guide/devices.txt).
  ...[136, 137, 138, 139, 140, 141, 142, 143].map((major) => ({ major })),
  { major: 10, minor: 200 },
];

/** Keeps containers from the machine's devices. */
export interface DeviceAccess {
  /** Confines the processes of a container, once. Throws the kernel's error. */
  confine(cgroupsPath: string): void;
}

/**
 * Returns what keeps containers from devices, whose nodes are in images or made by root: crun would allow all. Null without
 * control groups, or programs at them: device nodes in images then have no effect, and containers may make none.
 */
export function openDeviceAccess(groups: ControlGroups | null, logger: Logger): DeviceAccess | null {
  if (groups === null) return null;
  let filter: DeviceFilter;
  try {
    filter = loadDeviceFilter(ALLOWED);
  } catch (error) {
    logger.warn({}, `containers get no devices but those of /dev, and cannot make any: ${messageOf(error)}`);
    return null;
  }
  return { confine: (path) => filter.attach(join(groups.root, path)) };
}

/**
 * Returns the capabilities of a container whose devices nothing confines. Throws KubeletError "CreateContainerConfigError" if it
 * asks by name to make some.
 */
export function withoutDevices(
  capabilities: readonly string[],
  requested: readonly string[] | undefined,
): string[] {
  if (requested?.some((name) => name === 'MKNOD' || name === MAKES_DEVICES)) {
    throw new KubeletError(
      'CreateContainerConfigError',
      'capabilities.add: MKNOD: the control groups of this node do not keep containers from the machine’s devices',
      { op: 'start container', hint: 'privileged: true' },
    );
  }
  return capabilities.filter((name) => name !== MAKES_DEVICES);
}
