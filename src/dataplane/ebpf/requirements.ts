import { attachClsact, type ClsactFilter, detachClsact } from '../../kernel/bpf/clsact.ts';
import { linkDevice } from '../../kernel/bpf/link.ts';
import { canLoad, loadProgram, type ProgramSource } from '../../kernel/bpf/program.ts';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';

/** Numbers of helper functions (linux/bpf.h, enum bpf_func_id), with the kernel that has them for these programs. */
const HELPERS = [
  { name: 'bpf_ktime_get_ns', number: 5, since: '4.1' },
  { name: 'bpf_get_netns_cookie', number: 122, since: '5.7' },
  { name: 'bpf_set_retval', number: 187, since: '5.18' },
] as const;

const MOV_R1_ZERO = [0xb7, 0x01, 0, 0, 0, 0, 0, 0];
const MOV_R0_ONE = [0xb7, 0x00, 0, 0, 1, 0, 0, 0];
const EXIT = [0x95, 0, 0, 0, 0, 0, 0, 0];

/** Returns a program that allows every connect(), calling a helper first if one is given. */
function probe(attach: 'connect4' | 'getpeername4', helper: number | null): ProgramSource {
  const call = helper === null ? [] : [...MOV_R1_ZERO, 0x85, 0, 0, 0, helper, 0, 0, 0];
  return {
    name: 'fl_probe',
    type: 'sockAddress',
    attach,
    instructions: Uint8Array.from([...(helper === 122 ? call.slice(8) : call), ...MOV_R0_ONE, ...EXIT]),
    license: 'Apache-2.0',
  };
}

/**
 * Throws FairleadError, code "missing-kernel-feature", naming the missing feature. Loads small programs
 * instead of comparing versions, since distributions backport features.
 */
export function checkRequirements(): void {
  if (!canLoad(probe('connect4', null)))
    throw missing('programs at control groups (CONFIG_CGROUP_BPF)', '4.17');
  if (!canLoad(probe('getpeername4', null))) throw missing('programs at getpeername', '5.8');
  for (const { name, number, since } of HELPERS) {
    if (!canLoad(probe('connect4', number))) throw missing(name, since);
  }
}

/** The loopback device of every network namespace. */
const LOOPBACK = 1;
const PROBE: ClsactFilter = { priority: 0x464d, handle: 0x464d, name: 'fairlead_probe' };

/**
 * Returns how programs can be attached to devices: by links (tcx, Linux 6.6), otherwise as filters; null if
 * the kernel supports neither. Then pending connections cannot be rerouted, but new ones still avoid
 * ejected endpoints.
 */
export function deviceAttachment(netns: NetnsRef | undefined): 'tcx' | 'clsact' | null {
  const program = loadProgram({
    name: 'fl_probe',
    type: 'tc',
    instructions: Uint8Array.from([0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff, ...EXIT]),
    license: 'Apache-2.0',
  });
  const link = () => linkDevice(program.fd, LOOPBACK, 'tcxIngress').close();
  const filter = () => {
    using socket = openRouteSocket(netns);
    attachClsact(socket, LOOPBACK, 'ingress', PROBE, program.fd);
    detachClsact(socket, LOOPBACK, 'ingress', PROBE);
  };
  try {
    if (works(() => inNetns(netns, link))) return 'tcx';
    return works(filter) ? 'clsact' : null;
  } finally {
    program.close();
  }
}

function works(attempt: () => void): boolean {
  try {
    attempt();
    return true;
  } catch (error) {
    if (hasCode(error, 'EINVAL', 'EOPNOTSUPP', 'ENOTSUPP', 'ENOENT')) return false;
    throw error;
  }
}

function missing(feature: string, since: string): FairleadError {
  return new FairleadError(`this kernel lacks ${feature}, which came with Linux ${since}`, {
    op: 'start eBPF mode',
    code: 'missing-kernel-feature',
    object: feature,
    hint: 'the eBPF mode needs Linux 5.18 or later; use the nftables mode here',
  });
}
