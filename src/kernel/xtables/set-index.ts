import { libc, systemError } from '../libc.ts';
import { inNetns, type NetnsRef } from '../netns.ts';
import { AF_INET, IPPROTO_RAW, SOCK_CLOEXEC, SOCK_RAW } from '../socket-numbers.ts';
import type { SetIndex } from './codec.ts';

// linux/netfilter/ipset/ip_set.h
const SOL_IP = 0;
const SO_IP_SET = 83;
const IP_SET_OP_GET_BYNAME = 6;
const IP_SET_OP_GET_BYINDEX = 7;
const IPSET_PROTOCOL = 6;
const IPSET_INVALID_ID = 0xffff;
/** struct ip_set_req_get_set: u32 op, version; char name[32] or u16 index. */
const REQUEST = { version: 4, set: 8, bytes: 40 } as const;
const MAX_NAME = 31;

/** Opens the numbers of sets in a namespace, by which rules refer to them; of both families. */
export function openSetIndex(netns: NetnsRef | undefined): SetIndex & { close(): void } {
  const fd = inNetns(netns, () => libc().socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (fd < 0) throw systemError('open raw socket', 'ipset', 'run as root, or with CAP_NET_RAW');

  /** Returns the answer; null if the kernel has no ipset. */
  function ask(operation: number, write: (request: Buffer) => void): Buffer | null {
    const request = Buffer.alloc(REQUEST.bytes);
    request.writeUInt32LE(operation, 0);
    request.writeUInt32LE(IPSET_PROTOCOL, REQUEST.version);
    write(request);
    const length = Uint8Array.of(REQUEST.bytes, 0, 0, 0);
    return libc().getsockopt(fd, SOL_IP, SO_IP_SET, request, length) === 0 ? request : null;
  }

  return {
    numberOf(name) {
      if (name.length > MAX_NAME) return null;
      const answer = ask(IP_SET_OP_GET_BYNAME, (request) => request.write(name, REQUEST.set, 'latin1'));
      const number = answer?.readUInt16LE(REQUEST.set) ?? IPSET_INVALID_ID;
      return number === IPSET_INVALID_ID ? null : number;
    },
    nameOf(number) {
      const answer = ask(IP_SET_OP_GET_BYINDEX, (request) => request.writeUInt16LE(number, REQUEST.set));
      const name = answer?.toString('latin1', REQUEST.set).replace(/\0.*/s, '') ?? '';
      return name === '' ? null : name;
    },
    close: () => void libc().close(fd),
  };
}
