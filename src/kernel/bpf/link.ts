import { closeSync, openSync } from 'node:fs';
import { errnoName, libc } from '../libc.ts';
import { openPin, pin, unpin } from './pin.ts';
import { ATTACH, type AttachPoint } from './program.ts';
import { Attributes, bpf, bpfError, COMMAND, tryBpf } from './syscall.ts';

/** An attached program: it stays attached as long as the descriptor is open or the link is pinned. */
export interface BpfLink {
  readonly fd: number;
  close(): void;
}

/** Attributes of a link (struct bpf_link_info). */
export interface LinkInfo {
  readonly type: number;
  readonly id: number;
  readonly programId: number;
  /** Inode number of the control group; 0 if it was removed. Only for links to control groups. */
  readonly cgroupId: bigint;
  /** Interface index; 0 if the device was removed. Only for tcx links. */
  readonly interface: number;
}

/** Attaches a program to the control group with this directory, alongside other programs. */
export function linkCgroup(programFd: number, cgroup: string, attach: AttachPoint): BpfLink {
  const group = openSync(cgroup, 'r');
  try {
    const attributes = new Attributes(64).u32(0, programFd).u32(4, group).u32(8, ATTACH[attach]);
    return openLink(bpf(COMMAND.linkCreate, attributes, 'attach BPF program', attach));
  } finally {
    closeSync(group);
  }
}

/** Attaches a tc program to a device (tcx, kernel 6.6), in this thread's network namespace. */
export function linkDevice(programFd: number, index: number, attach: 'tcxIngress' | 'tcxEgress'): BpfLink {
  const attributes = new Attributes(64).u32(0, programFd).u32(4, index).u32(8, ATTACH[attach]);
  return openLink(bpf(COMMAND.linkCreate, attributes, 'attach BPF program', `${attach} of device ${index}`));
}

function openLink(fd: number): BpfLink {
  return { fd, close: () => closeSync(fd) };
}

/**
 * Gives a program to the link that an earlier process pinned under `path`; attaches it by a new link, and pins that, if there
 * is none, or one that `isSame` rejects because it was attached elsewhere.
 */
export function keepLink(
  path: string,
  programFd: number,
  isSame: (info: LinkInfo) => boolean,
  attach: () => BpfLink,
): { readonly link: BpfLink; readonly isFresh: boolean } {
  const pinned = openPin(path);
  if (pinned !== null) {
    const link = openLink(pinned);
    if (isSame(linkInfo(pinned))) {
      updateLink(pinned, programFd);
      return { link, isFresh: false };
    }
    unpin(path);
    link.close();
  }
  const link = attach();
  pin(link.fd, path);
  return { link, isFresh: true };
}

/** Replaces a link's program atomically. */
export function updateLink(linkFd: number, programFd: number): void {
  bpf(COMMAND.linkUpdate, new Attributes(16).u32(0, linkFd).u32(4, programFd), 'replace BPF program');
}

/** Detaches the program even if the link is open or pinned elsewhere. */
export function detachLink(linkFd: number): void {
  bpf(COMMAND.linkDetach, new Attributes(16).u32(0, linkFd), 'detach BPF program');
}

export function linkInfo(fd: number): LinkInfo {
  const info = new Uint8Array(64);
  bpf(
    COMMAND.info,
    new Attributes(16).u32(0, fd).u32(4, info.length).pointer(8, info),
    'read BPF link information',
  );
  const view = new DataView(info.buffer);
  return {
    type: view.getUint32(0, true),
    id: view.getUint32(4, true),
    programId: view.getUint32(8, true),
    cgroupId: view.getBigUint64(16, true),
    interface: view.getUint32(16, true),
  };
}

/** enum bpf_link_type */
const CGROUP_LINK = 3;

/** Detaches the links by which a program is attached to a control group, pinned or not. Returns their number. */
export function detachCgroupLinks(programId: number, cgroupId: bigint): number {
  let detached = 0;
  for (const fd of openLinks()) {
    try {
      const info = linkInfo(fd);
      if (info.type !== CGROUP_LINK || info.programId !== programId || info.cgroupId !== cgroupId) continue;
      detachLink(fd);
      detached++;
    } finally {
      closeSync(fd);
    }
  }
  return detached;
}

/** Opens each link of this machine in turn. The caller closes the descriptors. */
function* openLinks(): Generator<number> {
  for (let id = 0; ; ) {
    const next = new Attributes(16).u32(0, id);
    if (tryBpf(COMMAND.nextLink, next) < 0) {
      if (errnoName(libc().errno()) === 'ENOENT') return;
      throw bpfError('list BPF links');
    }
    id = next.readU32(4);
    const fd = tryBpf(COMMAND.linkById, new Attributes(16).u32(0, id));
    // The link was closed in the meantime.
    if (fd >= 0) yield fd;
  }
}
