import { formatAddress, type IPFamily } from '../lib/address.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { eachAttribute, MessageWriter, readAttributes, readBe16, readText } from './netlink/attributes.ts';
import { NETLINK_NETFILTER, NetlinkSocket, NLM_F_CREATE } from './netlink/socket.ts';
import type { NetnsRef } from './netns.ts';
import { AF_INET, AF_INET6 } from './socket-numbers.ts';

// linux/netfilter/nfnetlink.h, linux/netfilter/ipset/ip_set.h
const NFNL_SUBSYS_IPSET = 6;
const IPSET_CMD_CREATE = 2;
const IPSET_CMD_DESTROY = 3;
const IPSET_CMD_LIST = 7;
const IPSET_ATTR_PROTOCOL = 1;
const IPSET_ATTR_SETNAME = 2;
const IPSET_ATTR_TYPENAME = 3;
const IPSET_ATTR_REVISION = 4;
const IPSET_ATTR_FAMILY = 5;
const IPSET_ATTR_FLAGS = 6;
const IPSET_ATTR_DATA = 7;
const IPSET_ATTR_ADT = 8;
// Attributes of a member.
const IPSET_ATTR_IP = 1;
const IPSET_ATTR_PORT = 4;
const IPSET_ATTR_PROTO = 7;
const IPSET_ATTR_TIMEOUT = 6;
const IPSET_ATTR_MAXELEM = 19;
const IPSET_FLAG_LIST_SETNAME = 1 << 1;
const IPSET_PROTOCOL = 7;
const NLA_F_NET_BYTEORDER = 0x4000;
/** ipset's error codes start above those of the system. This one: rules refer to the set. */
const IPSET_ERR_BUSY = 'errno 4100';

/** Maximum number of addresses in a set, whose memory grows with its size. */
const MAX_ADDRESSES = 1_000_000;

/** A set of addresses, each of which expires after a time (hash:ip). */
export interface AddressSet {
  readonly name: string;
  readonly family: IPFamily;
  readonly seconds: number;
}

/** A member of a set of addresses, ports, or both. */
export interface SetMember {
  readonly address: string | null;
  readonly protocol: number | null;
  readonly port: number | null;
}

/** The sets of ipset(8) in a network namespace. */
export interface Ipsets {
  /** Creates missing sets. Throws FairleadError EEXIST if a set exists with other settings. */
  create(sets: Iterable<AddressSet>): void;
  /** Removes sets. Returns those that rules still use, with an error for each. */
  destroy(names: Iterable<string>): Map<string, Error>;
  /** Names of all sets. */
  list(): string[];
  /** Returns the members of a set; empty if it does not exist. Networks are shown by their first address. */
  members(name: string): SetMember[];
  close(): void;
  [Symbol.dispose](): void;
}

/** Opens the sets of a namespace. `netns`: default the namespace of this thread. */
export function openIpsets(netns: NetnsRef | undefined): Ipsets {
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    sendBuffer: 1 << 18,
    receiveBuffer: 1 << 22,
    netns,
  });
  const type = (command: number) => (NFNL_SUBSYS_IPSET << 8) | command;

  function payload(family: number, write: (writer: MessageWriter) => void): Uint8Array {
    const writer = new MessageWriter(256);
    writer.u8(family).u8(0).be16(0);
    writer.attribute(IPSET_ATTR_PROTOCOL, Uint8Array.of(IPSET_PROTOCOL));
    write(writer);
    return writer.bytes();
  }

  return {
    create(sets) {
      for (const { name, family, seconds } of sets) {
        const af = family === 'ipv4' ? AF_INET : AF_INET6;
        const message = payload(af, (writer) => {
          writer.attribute(IPSET_ATTR_SETNAME, zeroEnded(name));
          writer.attribute(IPSET_ATTR_TYPENAME, zeroEnded('hash:ip'));
          writer.attribute(IPSET_ATTR_REVISION, Uint8Array.of(0));
          writer.attribute(IPSET_ATTR_FAMILY, Uint8Array.of(af));
          writer.nested(IPSET_ATTR_DATA, () => {
            writer.attribute(IPSET_ATTR_TIMEOUT | NLA_F_NET_BYTEORDER, be32(seconds));
            writer.attribute(IPSET_ATTR_MAXELEM | NLA_F_NET_BYTEORDER, be32(MAX_ADDRESSES));
          });
        });
        // Without NLM_F_EXCL: an equal set that an earlier run left is adopted with its clients.
        socket.request(type(IPSET_CMD_CREATE), NLM_F_CREATE, message, `ipset ${name}`);
      }
    },
    destroy(names) {
      const used = new Map<string, Error>();
      for (const name of names) {
        const message = payload(0, (writer) => writer.attribute(IPSET_ATTR_SETNAME, zeroEnded(name)));
        try {
          socket.request(type(IPSET_CMD_DESTROY), 0, message, `ipset ${name}`);
        } catch (error) {
          if (hasCode(error, 'EBUSY', IPSET_ERR_BUSY)) used.set(name, inUse(name, error));
          else if (!hasCode(error, 'ENOENT')) throw error;
        }
      }
      return used;
    },
    list() {
      const message = payload(0, (writer) =>
        writer.attribute(IPSET_ATTR_FLAGS | NLA_F_NET_BYTEORDER, be32(IPSET_FLAG_LIST_SETNAME)),
      );
      return socket.dump(type(IPSET_CMD_LIST), message, 'ipsets').flatMap(({ payload: bytes }) => {
        const name = readAttributes(bytes.subarray(4)).get(IPSET_ATTR_SETNAME);
        return name ? [readText(name)] : [];
      });
    },
    members(name) {
      const message = payload(0, (writer) => writer.attribute(IPSET_ATTR_SETNAME, zeroEnded(name)));
      try {
        return socket
          .dump(type(IPSET_CMD_LIST), message, `ipset ${name}`)
          .flatMap(({ payload: bytes }) => readMembers(bytes.subarray(4)));
      } catch (error) {
        if (hasCode(error, 'ENOENT')) return [];
        throw error;
      }
    },
    close: () => socket.close(),
    [Symbol.dispose]: () => socket.close(),
  };
}

function readMembers(bytes: Uint8Array): SetMember[] {
  const list = readAttributes(bytes).get(IPSET_ATTR_ADT);
  if (!list) return [];
  return [...eachAttribute(list)].map(([, member]) => {
    const attributes = readAttributes(member);
    const ip = attributes.get(IPSET_ATTR_IP);
    const [address] = ip ? [...eachAttribute(ip)].map(([, value]) => value) : [];
    const port = attributes.get(IPSET_ATTR_PORT);
    return {
      address: address ? formatAddress(address) : null,
      protocol: attributes.get(IPSET_ATTR_PROTO)?.[0] ?? null,
      port: port ? readBe16(port) : null,
    };
  });
}

function inUse(name: string, cause: unknown): FairleadError {
  return new FairleadError(`cannot remove ipset ${name}: rules use it`, {
    op: 'remove ipset',
    code: 'EBUSY',
    object: name,
    hint: 'delete the foreign rules that refer to it',
    cause,
  });
}

const zeroEnded = (text: string): Uint8Array => Buffer.from(`${text}\0`, 'latin1');

function be32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}
