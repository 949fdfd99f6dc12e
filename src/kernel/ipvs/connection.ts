import { hostPort } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { type GenericFamily, resolveGenericFamily } from '../genetlink.ts';
import { errnoName } from '../libc.ts';
import { MessageWriter, readU32 } from '../netlink/attributes.ts';
import {
  NETLINK_GENERIC,
  type NetlinkMessage,
  NetlinkSocket,
  NLM_F_ACK,
  NLM_F_REQUEST,
} from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import {
  checkedAddress,
  describeServer,
  type IpvsTimeouts,
  REAL_SERVER_AT,
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

const MESSAGE_HEADER = 16;
/** Offset in the message's header. */
const SEQUENCE_AT = 8;
const GENERIC_HEADER = 4;

/** A command of a batch that the kernel refused; the other commands were executed. */
export interface IpvsRefusal {
  /** Position of the command in its batch. */
  readonly index: number;
  /** The errno's name: ENOENT, EEXIST, … */
  readonly code: string;
  /** The refused operation and its object. */
  readonly object: string;
}

/** The verb of each command, for errors. */
const VERBS: Readonly<Record<number, string>> = {
  [IPVS_CMD.newService]: 'add',
  [IPVS_CMD.setService]: 'change',
  [IPVS_CMD.deleteService]: 'delete',
  [IPVS_CMD.newDestination]: 'add',
  [IPVS_CMD.setDestination]: 'change',
  [IPVS_CMD.deleteDestination]: 'delete',
};

/**
 * Commands that are sent together. IPVS has no transactions: each command is executed or refused
 * separately, in order. There may be hundreds of thousands, so only their messages are kept.
 */
export class IpvsBatch {
  readonly #writer = new MessageWriter(16 * 1024);
  readonly #family: GenericFamily;
  readonly #sequence: () => number;
  /**
   * Messages of consecutive real servers differ little: the previous message, and the offset of its real
   * server.
   */
  #row: { readonly id: ServerId; readonly command: number; start: number; real: number } | null = null;
  #count = 0;
  #first = 0;
  #last = 0;
  #lastStart = 0;

  constructor(family: GenericFamily, sequence: () => number) {
    this.#family = family;
    this.#sequence = sequence;
  }

  /** Number of commands written. */
  get length(): number {
    return this.#count;
  }

  addServer(server: VirtualServer): void {
    this.#server(IPVS_CMD.newService, server.id, server);
  }

  /** Changes scheduler, flags and persistence. */
  changeServer(server: VirtualServer): void {
    this.#server(IPVS_CMD.setService, server.id, server);
  }

  /** Deletes a virtual server together with its real servers. */
  deleteServer(id: ServerId): void {
    this.#server(IPVS_CMD.deleteService, id);
  }

  addRealServer(id: ServerId, real: RealServer): void {
    this.#real(IPVS_CMD.newDestination, id, real, true);
  }

  /** Changes the weight. */
  changeRealServer(id: ServerId, real: RealServer): void {
    this.#real(IPVS_CMD.setDestination, id, real, true);
  }

  deleteRealServer(id: ServerId, real: Omit<RealServer, 'weight'>): void {
    this.#real(IPVS_CMD.deleteDestination, id, real, false);
  }

  /** Returns the bytes of all commands; only the last one requests an acknowledgement. */
  finish(): { readonly bytes: Uint8Array; readonly first: number; readonly last: number } {
    const bytes = this.#writer.bytes();
    new DataView(bytes.buffer, bytes.byteOffset).setUint16(
      this.#lastStart + 6,
      NLM_F_REQUEST | NLM_F_ACK,
      true,
    );
    return { bytes, first: this.#first, last: this.#last };
  }

  /** Describes the command at a position. */
  object(index: number): string {
    const bytes = this.#writer.bytes();
    let at = 0;
    for (let i = 0; i < index && at < bytes.length; i++) at += readU32(bytes, at);
    const payload = bytes.subarray(at + MESSAGE_HEADER + GENERIC_HEADER, at + readU32(bytes, at));
    const server = readServer(payload);
    if (!server) return 'a command';
    const real = readRealServer(payload, server.id.family);
    const verb = VERBS[bytes[at + MESSAGE_HEADER] ?? 0] ?? 'command';
    return `${verb} ${real ? `real server ${hostPort({ ip: real.address, port: real.port })} of ` : ''}${describeServer(server.id)}`;
  }

  #server(command: number, id: ServerId, server?: VirtualServer): void {
    this.#row = null;
    const start = this.#begin(command);
    writeServer(this.#writer, id, server);
    this.#end(start);
  }

  #real(
    command: number,
    id: ServerId,
    real: Omit<RealServer, 'weight'> & { weight?: number },
    whole: boolean,
  ): void {
    const writer = this.#writer;
    const { address, port, weight = 0 } = real;
    const row = this.#row;
    if (row?.id !== id || row.command !== command) {
      const start = this.#begin(command);
      writeServer(writer, id);
      this.#row = { id, command, start, real: writer.length - start };
      writeRealServer(writer, id.family, { address, port, weight }, whole);
      this.#end(start);
      return;
    }
    const bytes = checkedAddress(address, id.family);
    const start = writer.repeat(row.start);
    writer.putU32(start + SEQUENCE_AT, this.#next());
    const at = start + row.real;
    writer.put(at + REAL_SERVER_AT.address, bytes).putBe16(at + REAL_SERVER_AT.port, port);
    if (whole) writer.putU32(at + REAL_SERVER_AT.weight, weight);
    row.start = start;
    this.#lastStart = start;
  }

  #begin(command: number): number {
    const start = this.#writer.beginMessage(this.#family.id, NLM_F_REQUEST, this.#next());
    this.#writer.u8(command).u8(this.#family.version).u16(0);
    return start;
  }

  #end(start: number): void {
    this.#writer.endMessage(start);
    this.#lastStart = start;
  }

  #next(): number {
    this.#last = this.#sequence();
    if (this.#count++ === 0) this.#first = this.#last;
    return this.#last;
  }
}

/** A generic netlink socket to IPVS in one network namespace. */
export class IpvsConnection {
  readonly #socket: NetlinkSocket;
  readonly #family: GenericFamily;

  /**
   * `netns`: default the namespace of this thread. Throws FairleadError (no-ipvs) on a kernel without IPVS.
   */
  constructor(netns?: NetnsRef) {
    this.#socket = new NetlinkSocket({
      protocol: NETLINK_GENERIC,
      netns,
    });
    try {
      this.#family = resolveGenericFamily(this.#socket, IPVS_FAMILY);
    } catch (error) {
      this.#socket.close();
      if (!hasCode(error, 'ENOENT')) throw error;
      throw new FairleadError('this kernel does not support IPVS', {
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

  /** Sends a batch; returns the commands that were refused. */
  async commit(batch: IpvsBatch): Promise<IpvsRefusal[]> {
    if (batch.length === 0) return [];
    const { bytes, first, last } = batch.finish();
    return (await this.#socket.batch(bytes, last)).map(({ sequence, errno }) => {
      const index = sequence - first;
      return { index, code: errnoName(errno), object: batch.object(index) };
    });
  }

  /** Returns every virtual server of the namespace, including those of other programs. */
  servers(): VirtualServer[] {
    return this.#dump(IPVS_CMD.getService, () => {}).flatMap(({ payload }) => {
      const server = readServer(payload.subarray(GENERIC_HEADER));
      return server ? [server] : [];
    });
  }

  /** Returns true if the virtual server exists, including those of other programs. */
  hasServer(id: ServerId): boolean {
    const writer = this.#message(IPVS_CMD.getService);
    writeServer(writer, id);
    try {
      this.#socket.request(this.#family.id, 0, writer.bytes(), describeServer(id));
      return true;
    } catch (error) {
      if (hasCode(error, 'ESRCH')) return false;
      throw error;
    }
  }

  /** Returns a virtual server's real servers; empty if the server does not exist. */
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

  /** Sets the given timeouts; 0 or absent: unchanged. */
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

  [Symbol.dispose](): void {
    this.close();
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
