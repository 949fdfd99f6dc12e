import { createSocket } from 'node:dgram';
import { Socket } from 'node:net';
import { inControlGroup } from '../kernel/control-group.ts';
import { bindUdpIn, localPort, type NetnsRef, openTcpIn } from '../kernel/netns.ts';
import { setInitialSequence } from '../kernel/tcp-sequence.ts';
import type { IPFamily } from '../lib/address.ts';
import { codeText } from '../observe/gather-facts.ts';
import type { SocketResult } from './outcome.ts';

/** Where a probe's socket is opened. */
export interface ProbeOrigin {
  readonly netns: NetnsRef;
  /** The control group whose BPF programs handle the socket; null: this process's. */
  readonly controlGroup: string | null;
}

/** One connection or datagram, prepared: its identifying fields are known before it is sent. */
export interface Probe {
  send(address: string, port: number): void;
  /** The reports of the socket until now. */
  readonly result: SocketResult;
  close(): void;
}

export interface UdpProbe extends Probe {
  /** Its local port. */
  readonly port: number;
}

/** Prepares a connection that starts with this sequence number. It sends no data. */
export function prepareTcpProbe(origin: ProbeOrigin, family: IPFamily, sequence: number): Probe {
  const fd = inControlGroup(origin.controlGroup, () => openTcpIn(origin.netns, family));
  // From here on the socket closes the descriptor.
  const socket = new Socket({ fd, readable: true, writable: true });
  let result: SocketResult = 'open';
  socket.on('connect', () => {
    result = 'connected';
    // Without a reader the other side's end would stay unnoticed.
    socket.resume();
  });
  socket.on('error', (error) => {
    result = { error: codeText(error) };
  });
  return {
    send(host, port) {
      setInitialSequence(fd, sequence);
      socket.connect({ host, port });
    },
    get result() {
      return result;
    },
    close() {
      socket.destroy();
    },
  };
}

/** Prepares a datagram. `payload`: its contents by port. */
export function prepareUdpProbe(
  origin: ProbeOrigin,
  family: IPFamily,
  payload: (port: number) => Uint8Array,
): UdpProbe {
  const fd = inControlGroup(origin.controlGroup, () =>
    bindUdpIn(origin.netns, family === 'ipv4' ? '0.0.0.0' : '::', 0),
  );
  const port = localPort(fd);
  const socket = createSocket(family === 'ipv4' ? 'udp4' : 'udp6');
  let result: SocketResult = 'open';
  const fail = (error: unknown) => {
    result = { error: codeText(error) };
  };
  socket.on('error', fail);
  socket.on('message', () => {
    result = 'connected';
  });
  return {
    port,
    send(address, to) {
      socket.bind({ fd, exclusive: true }, () =>
        socket.connect(to, address, (error?: Error | null) => {
          if (error) fail(error);
          else socket.send(payload(to));
        }),
      );
    },
    get result() {
      return result;
    },
    close() {
      socket.close();
    },
  };
}
