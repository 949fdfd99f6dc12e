import {
  eachAttribute,
  MessageWriter,
  readAttributes,
  readText,
  readU16,
  readU32,
} from './netlink/attributes.ts';
import type { NetlinkSocket } from './netlink/socket.ts';

// linux/genetlink.h
const GENL_ID_CTRL = 16;
const CTRL_CMD_GETFAMILY = 3;
const CTRL_ATTR_FAMILY_ID = 1;
const CTRL_ATTR_FAMILY_NAME = 2;
const CTRL_ATTR_VERSION = 3;
const CTRL_ATTR_MCAST_GROUPS = 7;
const CTRL_ATTR_MCAST_GRP_NAME = 1;
const CTRL_ATTR_MCAST_GRP_ID = 2;

/** A family of generic netlink: its number is the message type of its requests. */
export interface GenericFamily {
  readonly id: number;
  readonly version: number;
  /** Multicast groups by name. */
  readonly groups: ReadonlyMap<string, number>;
}

/** struct genlmsghdr, which every generic netlink payload begins with. */
function genericHeader(command: number, version: number): MessageWriter {
  return new MessageWriter(256).u8(command).u8(version).u16(0);
}

/**
 * Looks up a generic netlink family by name ("IPVS", "nlctrl"); the kernel loads a module for it if it has
 * one. Throws FairleadError with code ENOENT if this kernel does not have the family.
 */
export function resolveGenericFamily(socket: NetlinkSocket, name: string): GenericFamily {
  const writer = genericHeader(CTRL_CMD_GETFAMILY, 1).attributeText(CTRL_ATTR_FAMILY_NAME, name);
  const [message] = socket.request(GENL_ID_CTRL, 0, writer.bytes(), `generic netlink family ${name}`);
  const attributes = readAttributes(message?.payload.subarray(4) ?? new Uint8Array());
  const groups = new Map<string, number>();
  for (const [, group] of eachAttribute(attributes.get(CTRL_ATTR_MCAST_GROUPS) ?? new Uint8Array())) {
    const fields = readAttributes(group);
    const id = fields.get(CTRL_ATTR_MCAST_GRP_ID);
    if (id) groups.set(readText(fields.get(CTRL_ATTR_MCAST_GRP_NAME) ?? new Uint8Array()), readU32(id));
  }
  return {
    id: readU16(attributes.get(CTRL_ATTR_FAMILY_ID) ?? new Uint8Array()),
    version: readU32(attributes.get(CTRL_ATTR_VERSION) ?? new Uint8Array()),
    groups,
  };
}
