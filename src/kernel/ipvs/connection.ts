import { FairleadError, hasCode } from '../../lib/errors.ts';
import { type GenericFamily, resolveGenericFamily } from '../genetlink.ts';
import { errnoName } from '../libc.ts';
import { MessageWriter } from '../netlink/attributes.ts';
import {
  NETLINK_GENERIC,
  type NetlinkMessage,
  NetlinkSocket,
  NLM_F_ACK,
  NLM_F_REQUEST,
} from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import {
  describeServer,
  hostPort,
  type IpvsTimeouts,
  type RealServer,
  readRealServer,
  readServer,
  readTimeouts,
  type ServerId,
  type ShownRealServer,
  type VirtualServer,
  writeRealServer,
  writeServer,
} from './codec.ts';
import { IPVS_CMD, IPVS_CMD_ATTR, IPVS_FAMILY } from './constants.ts';

const GENERIC_HEADER = 4;

/** A command of a batch that the kernel refused; the others were done. */
export interface IpvsRefusal {
  /** Position of the command in its batch. */
  readonly index: number;
  /** The errno's name: ENOENT, EEXIST, … */
  readonly code: string;
  /** What was to be done, and to what. */
  readonly object: string;
}

/** What a command does, for errors. */
interface Command {
  readonly verb: 'add' | 'change' | 'delete';
  readonly id: ServerId;
  readonly real: Omit<RealServer, 'weight'> | null;
}

/**
 * Commands that go to the kernel together. IPVS has no transactions: each is done or refused for itself, in order.
 */
export class IpvsBatch {
  readonly #writer = new MessageWriter(16 * 1024);
  readonly #family: GenericFamily;
  readonly #sequence: () => number;
  readonly #commands: Command[] = [];
  /** Real servers come in rows: what names their server is written once. */
  #named: { readonly id: ServerId; readonly bytes: Uint8Array } | null = null;
  #first = 0;
  #last = 0;
  #lastStart = 0;

  constructor(family: GenericFamily, sequence: () => number) {
    this.#family = family;
    this.#sequence = sequence;
  }

  /** How many commands were written. */
  get length(): number {
    return this.#commands.length;
  }

  addServer(server: VirtualServer): void {
    const { id } = server;
    this.#command(IPVS_CMD.newService, { verb: 'add', id, real: null }, () =>
      writeServer(this.#writer, id, server),
    );
  }

  /** Changes scheduler, flags and persistence. */
  changeServer(server: VirtualServer): void {
    const { id } = server;
    this.#command(IPVS_CMD.setService, { verb: 'change', id, real: null }, () =>
      writeServer(this.#writer, id, server),
    );
  }

  /** Its real servers go with it. */
  deleteServer(id: ServerId): void {
    this.#command(IPVS_CMD.deleteService, { verb: 'delete', id, real: null }, () =>
      writeServer(this.#writer, id),
    );
  }

  addRealServer(id: ServerId, real: RealServer): void {
    this.#real(IPVS_CMD.newDestination, 'add', id, real, true);
  }

  /** Changes the weight. */
  changeRealServer(id: ServerId, real: RealServer): void {
    this.#real(IPVS_CMD.setDestination, 'change', id, real, true);
  }

  deleteRealServer(id: ServerId, real: Omit<RealServer, 'weight'>): void {
    this.#real(IPVS_CMD.deleteDestination, 'delete', id, { ...real, weight: 0 }, false);
  }

  /** The bytes of all commands, the last of which is acknowledged, with what tells refusals apart. */
  finish(): { readonly bytes: Uint8Array; readonly first: number; readonly last: number } {
    const bytes = this.#writer.bytes();
    new DataView(bytes.buffer, bytes.byteOffset).setUint16(
      this.#lastStart + 6,
      NLM_F_REQUEST | NLM_F_ACK,
      true,
    );
    return { bytes, first: this.#first, last: this.#last };
  }

  object(index: number): string {
    const command = this.#commands[index];
    if (!command) return 'a command';
    const { verb, id, real } = command;
    return `${verb} ${real ? `real server ${hostPort(real)} of ` : ''}${describeServer(id)}`;
  }

  #real(command: number, verb: Command['verb'], id: ServerId, real: RealServer, whole: boolean): void {
    this.#command(command, { verb, id, real }, () => {
      this.#writer.raw(this.#nameOf(id));
      writeRealServer(this.#writer, id.family, real, whole);
    });
  }

  #nameOf(id: ServerId): Uint8Array {
    if (this.#named?.id !== id) {
      const writer = new MessageWriter(64);
      writeServer(writer, id);
      this.#named = { id, bytes: writer.bytes() };
    }
    return this.#named.bytes;
  }

  #command(command: number, object: Command, write: () => void): void {
    const writer = this.#writer;
    this.#last = this.#sequence();
    if (this.#commands.length === 0) this.#first = this.#last;
    const start = writer.beginMessage(this.#family.id, NLM_F_REQUEST, this.#last);
    writer.u8(command).u8(this.#family.version).u16(0);
    write();
    writer.endMessage(start);
    this.#lastStart = start;
    this.#commands.push(object);
  }
}

/** A generic netlink socket to IPVS in one network namespace. */
export class IpvsConnection {
  readonly #socket: NetlinkSocket;
  readonly #family: GenericFamily;

  /** `netns`: default the namespace of this thread. Throws FairleadError (no-ipvs) on a kernel without IPVS. */
  constructor(netns?: NetnsRef) {
    this.#socket = new NetlinkSocket({
      protocol: NETLINK_GENERIC,
      ...(netns === undefined ? {} : { netns }),
    });
    try {
      this.#family = resolveGenericFamily(this.#socket, IPVS_FAMILY);
    } catch (error) {
      this.#socket.close();
      if (!hasCode(error, 'ENOENT')) throw error;
      throw new FairleadError('this kernel has no IPVS', {
        op: 'open IPVS',
        code: 'no-ipvs',
        object: 'module ip_vs',
        hint: 'load it with "modprobe ip_vs", or use another mode',
        cause: error,
      });
    }
  }

  batch(): IpvsBatch {
    return new IpvsBatch(this.#family, () => this.#socket.nextSequence());
  }

  /** Sends a batch; returns what was refused. */
  async commit(batch: IpvsBatch): Promise<IpvsRefusal[]> {
    if (batch.length === 0) return [];
    const { bytes, first, last } = batch.finish();
    return (await this.#socket.batch(bytes, last)).map(({ sequence, errno }) => {
      const index = sequence - first;
      return { index, code: errnoName(errno), object: batch.object(index) };
    });
  }

  /** Every virtual server of the namespace, whoever made it. */
  servers(): VirtualServer[] {
    return this.#dump(IPVS_CMD.getService, () => {}).flatMap(({ payload }) => {
      const server = readServer(payload.subarray(GENERIC_HEADER));
      return server ? [server] : [];
    });
  }

  /** A virtual server's real servers; empty when there is no such server. */
  realServers(id: ServerId): ShownRealServer[] {
    return this.#dump(IPVS_CMD.getDestination, (writer) => writeServer(writer, id)).flatMap(({ payload }) => {
      const real = readRealServer(payload.subarray(GENERIC_HEADER), id.family);
      return real ? [real] : [];
    });
  }

  timeouts(): IpvsTimeouts {
    const writer = this.#message(IPVS_CMD.getConfig);
    const [reply] = this.#socket.request(this.#family.id, 0, writer.bytes(), 'IPVS timeouts');
    return readTimeouts(reply?.payload.subarray(GENERIC_HEADER) ?? new Uint8Array(0));
  }

  /** Sets the timeouts given; 0 and what is left out stay as they are. */
  setTimeouts(timeouts: Partial<IpvsTimeouts>): void {
    const all = {
      ...this.timeouts(),
      ...Object.fromEntries(Object.entries(timeouts).filter(([, v]) => v > 0)),
    };
    const writer = this.#message(IPVS_CMD.setConfig);
    writer.attributeU32(IPVS_CMD_ATTR.timeoutTcp, all.tcp);
    writer.attributeU32(IPVS_CMD_ATTR.timeoutTcpFin, all.tcpFin);
    writer.attributeU32(IPVS_CMD_ATTR.timeoutUdp, all.udp);
    this.#socket.request(this.#family.id, 0, writer.bytes(), 'IPVS timeouts');
  }

  close(): void {
    this.#socket.close();
  }

  #message(command: number): MessageWriter {
    return new MessageWriter(256).u8(command).u8(this.#family.version).u16(0);
  }

  #dump(command: number, write: (writer: MessageWriter) => void): NetlinkMessage[] {
    const writer = this.#message(command);
    write(writer);
    return this.#socket.dump(this.#family.id, writer.bytes(), 'IPVS servers');
  }
}
