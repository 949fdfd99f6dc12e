import { hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readText, readU32 } from '../netlink/attributes.ts';
import { type NetlinkSocket, NLM_F_CREATE, NLM_F_EXCL } from '../netlink/socket.ts';

// linux/rtnetlink.h, linux/pkt_sched.h, linux/pkt_cls.h
const RTM_NEWQDISC = 36;
const RTM_DELQDISC = 37;
const RTM_NEWTFILTER = 44;
const RTM_DELTFILTER = 45;
const RTM_GETTFILTER = 46;
const TCA_KIND = 1;
const TCA_OPTIONS = 2;
const TCA_BPF_FD = 6;
const TCA_BPF_NAME = 7;
const TCA_BPF_FLAGS = 8;
const TCA_BPF_FLAG_ACT_DIRECT = 1;
const CLSACT_HANDLE = 0xffff0000;
const CLSACT_PARENT = 0xfffffff1;
const PARENT = { ingress: 0xfffffff2, egress: 0xfffffff3 } as const;
const ETH_P_ALL = 3;

export type ClsactHook = keyof typeof PARENT;

/**
 * Identifies a filter of a device: the three fields together distinguish it from those of other programs.
 */
export interface ClsactFilter {
  /** 1 to 65535; lower values see packets first. */
  readonly priority: number;
  readonly handle: number;
  /** As tc(8) shows it. */
  readonly name: string;
}

/**
 * Attaches a program of type tc to a device, replacing the filter with the same identity; for kernels before 6.6, which
 * have no tcx links. The filter outlives this process. Throws FairleadError; EOPNOTSUPP or ENOENT where the kernel has no
 * clsact.
 */
export function attachClsact(
  socket: NetlinkSocket,
  device: number,
  hook: ClsactHook,
  identity: ClsactFilter,
  programFd: number,
): void {
  const qdisc = header(device, CLSACT_HANDLE, CLSACT_PARENT, 0).attributeText(TCA_KIND, 'clsact');
  try {
    socket.request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, qdisc.bytes(), `clsact of device ${device}`);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
  const filter = filterHeader(device, hook, identity).attributeText(TCA_KIND, 'bpf');
  const options = new MessageWriter(128)
    .attributeU32(TCA_BPF_FD, programFd)
    .attributeText(TCA_BPF_NAME, identity.name)
    .attributeU32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
  filter.attribute(TCA_OPTIONS, options.bytes());
  socket.request(RTM_NEWTFILTER, NLM_F_CREATE, filter.bytes(), `filter of device ${device}`);
}

/** Returns true if the device has this filter. */
export function hasClsact(
  socket: NetlinkSocket,
  device: number,
  hook: ClsactHook,
  identity: ClsactFilter,
): boolean {
  return filters(socket, device, hook).some(
    ({ handle, name }) => handle === identity.handle && name === identity.name,
  );
}

/** Removes a filter from a device; with the last filter, also removes the clsact qdisc. */
export function detachClsact(
  socket: NetlinkSocket,
  device: number,
  hook: ClsactHook,
  identity: ClsactFilter,
): void {
  if (!hasClsact(socket, device, hook, identity)) return;
  const request = filterHeader(device, hook, identity).attributeText(TCA_KIND, 'bpf');
  try {
    socket.request(RTM_DELTFILTER, 0, request.bytes(), `filter of device ${device}`);
    if (filters(socket, device, 'ingress').length + filters(socket, device, 'egress').length > 0) return;
    const qdisc = header(device, CLSACT_HANDLE, CLSACT_PARENT, 0);
    socket.request(RTM_DELQDISC, 0, qdisc.bytes(), `clsact of device ${device}`);
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'ENODEV', 'EINVAL')) throw error;
  }
}

function filters(
  socket: NetlinkSocket,
  device: number,
  hook: ClsactHook,
): { readonly handle: number; readonly name: string | null }[] {
  try {
    return socket
      .dump(RTM_GETTFILTER, header(device, 0, PARENT[hook], 0).bytes(), `filters of device ${device}`)
      .flatMap(({ payload }) => {
        const handle = readU32(payload, 8);
        const options = readAttributes(payload.subarray(20)).get(TCA_OPTIONS);
        const name = options && readAttributes(options).get(TCA_BPF_NAME);
        // Each priority is also listed separately, with handle 0.
        return handle === 0 ? [] : [{ handle, name: name ? readText(name) : null }];
      });
  } catch (error) {
    // The device has no clsact, or does not exist.
    if (hasCode(error, 'EINVAL', 'ENODEV', 'ENOENT', 'EOPNOTSUPP')) return [];
    throw error;
  }
}

/** struct tcmsg */
function header(device: number, handle: number, parent: number, info: number): MessageWriter {
  return new MessageWriter(512).u32(0).u32(device).u32(handle).u32(parent).u32(info);
}

function filterHeader(device: number, hook: ClsactHook, { priority, handle }: ClsactFilter): MessageWriter {
  const protocol = ((ETH_P_ALL << 8) & 0xff00) | (ETH_P_ALL >> 8);
  return header(device, handle, PARENT[hook], ((priority << 16) | protocol) >>> 0);
}
