import type { AttachPoint, ProgramSource } from '../../kernel/bpf/program.ts';

/**
 * The attach point of a program in the BPF objects. `cgroup`: once, for all processes of the node's control
 * group; `device`: on each of the node's devices.
 */
export type Hook =
  | { readonly type: ProgramSource['type']; readonly place: 'cgroup'; readonly attach: AttachPoint }
  | { readonly type: ProgramSource['type']; readonly place: 'device'; readonly attach: DeviceHook };

const socket = (attach: AttachPoint): Hook => ({ type: 'sockAddress', place: 'cgroup', attach });

/** By the program's section in the object. */
export const HOOKS: Readonly<Record<string, Hook>> = {
  'cgroup/connect4': socket('connect4'),
  'cgroup/connect6': socket('connect6'),
  'cgroup/sendmsg4': socket('sendmsg4'),
  'cgroup/sendmsg6': socket('sendmsg6'),
  'cgroup/recvmsg4': socket('recvmsg4'),
  'cgroup/recvmsg6': socket('recvmsg6'),
  'cgroup/getpeername4': socket('getpeername4'),
  'cgroup/getpeername6': socket('getpeername6'),
  sockops: { type: 'sockOps', place: 'cgroup', attach: 'sockOps' },
  'cgroup_skb/egress': { type: 'cgroupSkb', place: 'cgroup', attach: 'inetEgress' },
  'tc/ingress': { type: 'tc', place: 'device', attach: 'tcxIngress' },
  'tc/egress': { type: 'tc', place: 'device', attach: 'tcxEgress' },
};

export type DeviceHook = 'tcxIngress' | 'tcxEgress';
export const DEVICE_HOOKS: readonly DeviceHook[] = ['tcxIngress', 'tcxEgress'];

/** Returns the hooks of the control group. The hook for packets slows down every packet, so it is attached only if needed. */
export function cgroupHooks(withPackets: boolean): ReadonlySet<AttachPoint> {
  const hooks = Object.values(HOOKS).flatMap(({ place, attach }) => (place === 'cgroup' ? [attach] : []));
  return new Set(hooks.filter((hook) => withPackets || hook !== 'inetEgress'));
}
