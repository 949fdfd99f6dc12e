import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readText, readU32 } from '../netlink/attributes.ts';
import { type NetlinkSocket, NLM_F_CREATE, NLM_F_REPLACE } from '../netlink/socket.ts';

// linux/rtnetlink.h, linux/pkt_sched.h
const RTM_NEWQDISC = 36;
const RTM_DELQDISC = 37;
const RTM_GETQDISC = 38;
const TCA_KIND = 1;
const TCA_OPTIONS = 2;
const TCA_NETEM_LATENCY64 = 10;
const TC_H_ROOT = 0xffffffff;
const NETEM = 'netem';
/** Packets that wait for their delay. */
const LIMIT = 10_000;

/**
 * Delays every packet that leaves through a device (tc-netem(8)), instead of its queueing discipline. Throws FairleadError
 * "missing-kernel-feature" if the kernel has no netem.
 */
export function delayDevice(socket: NetlinkSocket, device: number, delayMs: number): void {
  // struct tc_netem_qopt: the latency in ticks is replaced by the 64-bit one, in nanoseconds.
  const options = new MessageWriter(64).u32(0).u32(LIMIT).u32(0).u32(0).u32(0).u32(0);
  const latency = new Uint8Array(8);
  new DataView(latency.buffer).setBigInt64(0, BigInt(Math.round(delayMs * 1e6)), true);
  options.attribute(TCA_NETEM_LATENCY64, latency);
  const message = header(device).attributeText(TCA_KIND, NETEM).attribute(TCA_OPTIONS, options.bytes());
  try {
    socket.request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, message.bytes(), `netem of device ${device}`);
  } catch (error) {
    if (!hasCode(error, 'ENOENT', 'EOPNOTSUPP')) throw error;
    throw new FairleadError('the kernel cannot delay packets: it has no netem', {
      op: 'delay packets',
      code: 'missing-kernel-feature',
      hint: 'modprobe sch_netem, or use a kernel with CONFIG_NET_SCH_NETEM',
      cause: error,
    });
  }
}

/** Returns true if packets that leave through the device are delayed. */
export function isDelayed(socket: NetlinkSocket, device: number): boolean {
  return socket.dump(RTM_GETQDISC, header(device).bytes(), 'queueing disciplines').some(({ payload }) => {
    const kind = readAttributes(payload.subarray(20)).get(TCA_KIND);
    return readU32(payload, 4) === device && kind !== undefined && readText(kind) === NETEM;
  });
}

/** Ends the delay of a device. */
export function undelayDevice(socket: NetlinkSocket, device: number): void {
  socket.request(RTM_DELQDISC, 0, header(device).bytes(), `netem of device ${device}`);
}

/** struct tcmsg of the root queueing discipline. */
const header = (device: number): MessageWriter =>
  new MessageWriter(256).u32(0).u32(device).u32(0).u32(TC_H_ROOT).u32(0);
