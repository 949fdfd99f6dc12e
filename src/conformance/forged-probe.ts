import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { bindUdpIn, type NetnsRef } from '../kernel/netns.ts';
import { afterRunning, type Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Outcome } from './probe.ts';

/** The network of a pod, and its address. */
export interface PodEnd {
  readonly netns: NetnsRef;
  readonly address: string;
}

export interface ForgedProbe {
  readonly from: PodEnd;
  /** A pod of the same node. */
  readonly to: PodEnd;
  /** The source of the forged datagrams, of the family of both ends. */
  readonly source: string;
  readonly clock: Clock;
  /** The running time after which a datagram with the sender's own address counts as lost, in milliseconds. */
  readonly patience: number;
}

const FORGED = 3;
const REPEAT_MS = 100;

/**
 * Sends datagrams with another source from one pod to another, as a process with CAP_NET_RAW can, and then one with the sender's
 * own address, on the same way. The outcome is an answer if a forged one arrived, silence if only the honest one did. Never rejects.
 */
export async function probeForged({ from, to, source, clock, patience }: ForgedProbe): Promise<Outcome> {
  const opened: Socket[] = [];
  const open = async (fd: number): Promise<Socket> => {
    const socket = createSocket(to.address.includes(':') ? 'udp6' : 'udp4');
    opened.push(socket);
    const listening = once(socket, 'listening');
    socket.bind({ fd, exclusive: true });
    await listening;
    return socket;
  };
  const arrived = new Set<string>();
  try {
    const receiver = await open(bindUdpIn(to.netns, to.address, 0));
    receiver.on('message', (data) => arrived.add(data.toString()));
    const honest = await open(bindUdpIn(from.netns, from.address, 0));
    const forger = await open(bindUdpIn(from.netns, source, 0, { isForeign: true }));
    const { port } = receiver.address();
    // An error, such as that of a route, is a packet that did not arrive.
    const send = (socket: Socket, text: string) =>
      new Promise<void>((resolve) => socket.send(text, port, to.address, () => resolve()));
    // The first lets the kernel ask for its neighbour.
    for (const [turn, text] of ['first', 'last'].entries()) {
      if (turn > 0) for (let i = 0; i < FORGED; i++) await send(forger, 'forged');
      if (
        !(await untilArrived(
          () => send(honest, text),
          () => arrived.has(text),
          clock,
          patience,
        ))
      )
        return { kind: 'failed', error: "datagrams with the sender's own address do not arrive either" };
    }
    return arrived.has('forged')
      ? { kind: 'answer', server: '', message: '', client: source }
      : { kind: 'silence' };
  } catch (error) {
    return { kind: 'failed', error: messageOf(error) };
  } finally {
    for (const socket of opened) socket.close();
  }
}

async function untilArrived(
  send: () => Promise<void>,
  has: () => boolean,
  clock: Clock,
  patience: number,
): Promise<boolean> {
  let isOver = false;
  const cancel = afterRunning(clock, patience, () => {
    isOver = true;
  });
  try {
    for (let pauseMs = 1; !has(); pauseMs = Math.min(2 * pauseMs, REPEAT_MS)) {
      if (isOver) return false;
      await send();
      await new Promise<void>((resolve) => void clock.after(pauseMs, resolve));
    }
    return true;
  } finally {
    cancel();
  }
}
