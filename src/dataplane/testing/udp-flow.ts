import { createSocket } from 'node:dgram';
import { libc, systemError } from '../../kernel/libc.ts';
import { bindUdpIn, inNetns, socketAddress } from '../../kernel/netns.ts';
import { addressBytes } from '../../lib/address.ts';

const PATIENCE_MS = 500;

/** A UDP client that keeps its port, so that all its datagrams belong to one flow. */
export interface UdpFlow {
  /** Sends a datagram. Resolves with the first word of the answer, "silence", or an errno name. */
  ask(): Promise<string>;
  close(): void;
}

/** Opens a connected UDP socket in a namespace. */
export async function openUdpFlow(namespace: string, address: string, port: number): Promise<UdpFlow> {
  const v6 = address.includes(':');
  const socket = createSocket(v6 ? 'udp6' : 'udp4');
  let answered: (answer: string) => void = () => {};
  socket.on('message', (bytes) => answered(bytes.toString().split(' ')[0] ?? ''));
  socket.on('error', (error: NodeJS.ErrnoException) => answered(error.code ?? 'error'));
  const fd = bindUdpIn(namespace, v6 ? '::' : '0.0.0.0', 0);
  await new Promise<void>((resolve) => socket.bind({ fd, exclusive: true }, () => resolve()));
  await new Promise<void>((resolve) => socket.connect(port, address, () => resolve()));
  return {
    ask: () =>
      new Promise<string>((resolve) => {
        const timer = setTimeout(() => resolve('silence'), PATIENCE_MS);
        answered = (answer) => {
          clearTimeout(timer);
          resolve(answer);
        };
        socket.send('?');
      }),
    close: () => socket.close(),
  };
}

const AF_INET = 2;
const SOCK_RAW = 3;
/** Packets include their IP header (raw(7)). */
const IPPROTO_RAW = 255;
const UDP = 17;

/** Sends an IPv4 datagram whose source port is 0, which sockets cannot have. */
export function sendFromPortZero(namespace: string, source: string, address: string, port: number): void {
  const packet = new Uint8Array(29);
  const view = new DataView(packet.buffer);
  packet[0] = 0x45;
  view.setUint16(2, packet.length);
  packet[8] = 64;
  packet[9] = UDP;
  packet.set(addressBytes(source) ?? [], 12);
  packet.set(addressBytes(address) ?? [], 16);
  view.setUint16(22, port);
  // The length; without a checksum (RFC 768).
  view.setUint16(24, 9);
  packet[28] = '?'.charCodeAt(0);
  const fd = inNetns(namespace, () => libc().socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
  if (fd < 0) throw systemError('open raw socket');
  try {
    const to = socketAddress(address, 0);
    if (libc().connect(fd, to, to.length) !== 0 || libc().send(fd, packet, packet.length, 0) < 0)
      throw systemError('send datagram', address);
  } finally {
    libc().close(fd);
  }
}
