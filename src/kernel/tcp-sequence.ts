import { systemError } from './libc.ts';
import { setSocketOption } from './socket-option.ts';

// linux/tcp.h
const IPPROTO_TCP = 6;
const TCP_REPAIR = 19;
const TCP_REPAIR_QUEUE = 20;
const TCP_QUEUE_SEQ = 21;
const TCP_SEND_QUEUE = 2;
const TCP_REPAIR_ON = 1;
const TCP_REPAIR_OFF = 0;

/**
 * Chooses the sequence number of the SYN that connect() sends on a new TCP socket, by the kernel's checkpoint interface:
 * connect() keeps a number that is set (tcp_v4_connect, tcp_v6_connect). `sequence`: not 0, which stands for none. Needs
 * CAP_NET_ADMIN. Throws FairleadError.
 */
export function setInitialSequence(fd: number, sequence: number): void {
  const set = (option: number, value: number) => {
    if (!setSocketOption(fd, IPPROTO_TCP, option, value))
      throw systemError('choose the sequence number of a connection');
  };
  set(TCP_REPAIR, TCP_REPAIR_ON);
  set(TCP_REPAIR_QUEUE, TCP_SEND_QUEUE);
  set(TCP_QUEUE_SEQ, sequence);
  set(TCP_REPAIR, TCP_REPAIR_OFF);
}
