import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { IpvsConnection } from './ipvs/connection.ts';
import { libc, systemError } from './libc.ts';
import { MNT_DETACH } from './mount-flags.ts';
import { createNetns, inNewNamespaces, removeNetns } from './netns.ts';
import type { BaseChain } from './nftables/batch.ts';
import { NftConnection } from './nftables/connection.ts';
import { addLink, getLink, type NewLink, openRouteSocket } from './rtnetlink/links.ts';
import { writeSysctl } from './sysctl.ts';

/*
 * Probes of the kernel: each makes the thing itself and removes it, so that the kernel loads the module. A list such as
 * /proc/filesystems or /proc/modules lacks modules that are not loaded yet.
 */

/** Features that are tried in a throwaway network namespace. */
export type Feature = 'veth' | 'bridge' | 'dummy' | 'vxlan' | 'nf_tables' | 'netdev' | 'ip_vs' | 'sysctls';

const NFPROTO_IPV4 = 2;
const NFPROTO_NETDEV = 5;
const TABLE = 'fairlead-probe';

const LINKS: Readonly<Record<'veth' | 'bridge' | 'dummy' | 'vxlan', NewLink>> = {
  veth: { kind: 'veth', name: 'probe0', peer: { name: 'probe1' } },
  bridge: { kind: 'bridge', name: 'probe2' },
  dummy: { kind: 'dummy', name: 'probe3' },
  vxlan: { kind: 'vxlan', name: 'probe4', id: 1, local: '127.0.0.1', port: 4789, learning: false },
};

const PROBES: Readonly<Record<Feature, () => void>> = {
  veth: () => makeLink(LINKS.veth),
  bridge: () => makeLink(LINKS.bridge),
  dummy: () => makeLink(LINKS.dummy),
  vxlan: () => makeLink(LINKS.vxlan),
  // All modes have rules for NAT.
  nf_tables: () => makeChain(NFPROTO_IPV4, { type: 'nat', hook: 'postrouting', priority: 100 }),
  // The guard of pods' sources has chains at devices.
  netdev: () => makeChain(NFPROTO_NETDEV, { type: 'filter', hook: 'ingress', priority: 0, device: 'lo' }),
  ip_vs: () => new IpvsConnection().close(),
  sysctls: () => void writeSysctl('net.ipv4.ip_forward', 1),
};

function makeLink(link: NewLink): void {
  using socket = openRouteSocket();
  addLink(socket, link);
}

function makeChain(family: number, chain: BaseChain): void {
  const connection = new NftConnection();
  try {
    const batch = connection.batch(family);
    batch.addTable(TABLE);
    batch.addChain(TABLE, 'probe', chain);
    connection.commitSync(batch);
  } finally {
    connection.close();
  }
}

/** Returns the failures of the features that do not work here; an empty map: all work. Throws if no namespace can be made. */
export function probeFeatures(features: readonly Feature[]): Map<Feature, unknown> {
  return inNewNamespaces(['net'], () => {
    const failures = new Map<Feature, unknown>();
    for (const feature of features) {
      try {
        PROBES[feature]();
      } catch (error) {
        failures.set(feature, error);
      }
    }
    return failures;
  });
}

/** Makes and removes a named network namespace. Throws FairleadError. */
export function probeNamedNetns(): void {
  const name = `fl-probe-${process.pid}`;
  createNetns(name);
  try {
    using socket = openRouteSocket(name);
    getLink(socket, 'lo');
  } finally {
    removeNetns(name);
  }
}

/**
 * Mounts and writes an overlay whose upper layer is in `folder`, as those of containers. Throws FairleadError: ENODEV
 * (a kernel without overlayfs), EINVAL (a file system that cannot be an upper layer, or too many overlays on each other),
 * EROFS, EPERM, ….
 */
export function probeOverlay(folder: string, lower = '/', data = ''): void {
  const probe = mkdtempSync(join(folder, `.overlay-${process.pid}-`));
  const [upper, work, merged] = ['upper', 'work', 'merged'].map((name) => join(probe, name)) as [
    string,
    string,
    string,
  ];
  try {
    for (const path of [upper, work, merged]) mkdirSync(path, { mode: 0o755 });
    const options = `lowerdir=${lower},upperdir=${upper},workdir=${work}${data}`;
    if (libc().mount('overlay', merged, 'overlay', 0, options) !== 0)
      throw systemError('mount overlay', merged);
    try {
      // An overlay whose work folder cannot be used is mounted read-only.
      mkdirSync(join(merged, `.probe-${process.pid}`));
    } catch (error) {
      throw new FairleadError(`the overlay cannot be written: ${messageOf(error)}`, {
        op: 'probe overlay',
        code: 'EROFS',
        object: folder,
        cause: error,
      });
    } finally {
      libc().umount2(merged, MNT_DETACH);
    }
  } finally {
    rmSync(probe, { recursive: true, force: true });
  }
}

/** Removes what probes of overlays left in a folder whose process was killed. */
export function removeEndedProbes(folder: string): void {
  if (!existsSync(folder)) return;
  for (const name of readdirSync(folder)) {
    const pid = /^\.overlay-([0-9]+)-/.exec(name)?.[1];
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue;
    libc().umount2(join(folder, name, 'merged'), MNT_DETACH);
    rmSync(join(folder, name), { recursive: true, force: true });
  }
}
