import { formatAddress, type IPFamily, parseCidr } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { type Attributes, MessageWriter, readAttributes, readText, readU32 } from '../netlink/attributes.ts';
import { type NetlinkMessage, type NetlinkSocket, NLM_F_CREATE, NLM_F_EXCL } from '../netlink/socket.ts';
import {
  AF_INET,
  AF_INET6,
  AF_UNSPEC,
  FRA_DST,
  FRA_FWMARK,
  FRA_FWMASK,
  FRA_IIFNAME,
  FRA_OIFNAME,
  FRA_PRIORITY,
  FRA_SRC,
  FRA_SUPPRESS_PREFIXLEN,
  FRA_TABLE,
  RTM_DELRULE,
  RTM_GETRULE,
  RTM_NEWRULE,
} from './constants.ts';

/** A rule of the routing policy database: selects a table for packets. */
export interface RoutingRule {
  readonly family: IPFamily;
  /** Lower values come first; the main table's rule has 32766. */
  readonly priority: number;
  readonly table: number;
  /** Source and destination networks. */
  readonly from?: string;
  readonly to?: string;
  readonly incoming?: string;
  readonly outgoing?: string;
  readonly mark?: number;
  /** Default: all bits. */
  readonly markMask?: number;
  /** Ignore the table's result if its prefix is this long or shorter; 0 ignores default routes. */
  readonly suppressPrefixLength?: number;
}

/** Adds a rule; an existing one is not an error. */
export function addRule(socket: NetlinkSocket, rule: RoutingRule): void {
  try {
    socket.request(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, encodeRule(rule), `add rule ${rule.priority}`);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
}

/** Removes a rule. Returns false if it does not exist. */
export function deleteRule(socket: NetlinkSocket, rule: RoutingRule): boolean {
  try {
    socket.request(RTM_DELRULE, 0, encodeRule(rule), `delete rule ${rule.priority}`);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    throw error;
  }
}

export function listRules(socket: NetlinkSocket, family?: IPFamily): RoutingRule[] {
  const number = family === undefined ? AF_UNSPEC : family === 'ipv4' ? AF_INET : AF_INET6;
  const writer = new MessageWriter(16).u8(number).u8(0).u8(0).u8(0).u32(0).u32(0);
  return socket
    .dump(RTM_GETRULE, writer.bytes(), 'rules')
    .map(readRule)
    .filter((rule) => rule !== null);
}

/** Reads an RTM_NEWRULE or RTM_DELRULE message (struct fib_rule_hdr and attributes); null for other families. */
export function readRule(message: NetlinkMessage): RoutingRule | null {
  const { payload } = message;
  if (payload[0] !== AF_INET && payload[0] !== AF_INET6) return null;
  const attributes = readAttributes(payload.subarray(12));
  const network = (type: number, prefix: number | undefined) => {
    const bytes = attributes.get(type);
    return bytes && `${formatAddress(bytes)}/${prefix}`;
  };
  const suppress = number(attributes, FRA_SUPPRESS_PREFIXLEN);
  const values = {
    from: network(FRA_SRC, payload[2]),
    to: network(FRA_DST, payload[1]),
    incoming: text(attributes, FRA_IIFNAME),
    outgoing: text(attributes, FRA_OIFNAME),
    mark: number(attributes, FRA_FWMARK),
    markMask: number(attributes, FRA_FWMASK),
    // -1: no suppression.
    suppressPrefixLength: suppress === 0xffffffff ? undefined : suppress,
  };
  return {
    family: payload[0] === AF_INET ? 'ipv4' : 'ipv6',
    priority: number(attributes, FRA_PRIORITY) ?? 0,
    table: number(attributes, FRA_TABLE) ?? payload[4] ?? 0,
    ...(Object.fromEntries(
      Object.entries(values).filter(([, value]) => value !== undefined),
    ) as Partial<RoutingRule>),
  };
}

const FR_ACT_TO_TBL = 1;

function encodeRule(rule: RoutingRule): Uint8Array {
  const from = network(rule, 'from', rule.from);
  const to = network(rule, 'to', rule.to);
  const writer = new MessageWriter(128)
    .u8(rule.family === 'ipv4' ? AF_INET : AF_INET6)
    .u8(to?.prefix ?? 0)
    .u8(from?.prefix ?? 0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(FR_ACT_TO_TBL)
    .u32(0);
  writer.attributeU32(FRA_PRIORITY, rule.priority).attributeU32(FRA_TABLE, rule.table);
  if (from) writer.attribute(FRA_SRC, from.bytes);
  if (to) writer.attribute(FRA_DST, to.bytes);
  if (rule.incoming !== undefined) writer.attributeText(FRA_IIFNAME, rule.incoming);
  if (rule.outgoing !== undefined) writer.attributeText(FRA_OIFNAME, rule.outgoing);
  if (rule.mark !== undefined) writer.attributeU32(FRA_FWMARK, rule.mark);
  if (rule.markMask !== undefined) writer.attributeU32(FRA_FWMASK, rule.markMask);
  if (rule.suppressPrefixLength !== undefined) {
    writer.attributeU32(FRA_SUPPRESS_PREFIXLEN, rule.suppressPrefixLength);
  }
  return writer.bytes();
}

function network(rule: RoutingRule, field: string, value: string | undefined) {
  if (value === undefined) return null;
  const cidr = parseCidr(value);
  if (cidr?.family === rule.family) return cidr;
  throw new FairleadError(
    `rule ${rule.priority}: ${field} ${JSON.stringify(value)} is not an ${rule.family} network`,
    {
      op: 'encode rule',
      code: 'EINVAL',
    },
  );
}

function text(attributes: Attributes, type: number): string | undefined {
  const value = attributes.get(type);
  return value && readText(value);
}

function number(attributes: Attributes, type: number): number | undefined {
  const value = attributes.get(type);
  return value && readU32(value);
}
