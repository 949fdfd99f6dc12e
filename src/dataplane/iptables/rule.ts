import { addressBytes, formatAddress, type IPFamily } from '../../lib/address.ts';
import { podSource } from '../../service/classify.ts';
import type { LocalDetection, PortRef, Protocol } from '../../service/model.ts';
import { portName } from '../rules/frontend-keys.ts';

/**
 * A rule without "-A CHAIN ", in the order and form of iptables-save, so that written and listed rules can be compared as
 * text.
 */
export type Rule = string;

/** The matches of a rule, rendered in iptables-save's order. */
export interface Match {
  /** "10.0.0.0/8", with a leading "! " to negate. */
  readonly source?: string | undefined;
  readonly destination?: string | undefined;
  readonly inInterface?: string | undefined;
  readonly protocol?: Protocol | undefined;
  readonly comment?: string | undefined;
  /** Port, or range "30000:30063". */
  readonly port?: number | string | undefined;
  /** Further matches as text: "-m addrtype --src-type LOCAL". */
  readonly more?: string | undefined;
}

export function rule(match: Match, target: string): Rule {
  let text = option('-s', match.source) + option('-d', match.destination) + option('-i', match.inInterface);
  const protocol = match.protocol?.toLowerCase();
  if (protocol) text += `-p ${protocol} `;
  if (match.comment) text += `-m comment --comment "${commentText(match.comment)}" `;
  if (match.more) text += `${match.more} `;
  if (protocol && match.port !== undefined) text += `-m ${protocol} --dport ${match.port} `;
  return text + target;
}

function option(name: string, value: string | undefined): string {
  if (value === undefined) return '';
  return value.startsWith('! ') ? `! ${name} ${value.slice(2)} ` : `${name} ${value} `;
}

/** xt_comment has room for 256 bytes; quotes and line ends would end the argument or the rule. */
const commentText = (text: string): string => text.replace(/[^\w .,:/>[\]-]/g, '?').slice(0, 250);

export const jump = (chain: string): string => `-j ${chain}`;

/** Continues in another chain without returning. */
export const go = (chain: string): string => `-g ${chain}`;

/** Returns "10.0.0.1/32", "fd00::1/128". */
export const hostNetwork = (address: string): string => `${address}/${address.includes(':') ? 128 : 32}`;

/**
 * Returns a match with a probability of 1/n, in units of xt_statistic (2^-31) and with the digits that
 * iptables prints.
 */
export function chance(n: number): string {
  const units = Math.round(0x8000_0000 / n);
  let probability = units / 0x8000_0000;
  // Exactly halfway between two texts (n = 4096) iptables prints the even one, as C does, and toFixed the
  // larger one.
  if ((units & 0xf_ffff) === 0x8_0000) probability = (2 * Math.round((probability * 1e11) / 2)) / 1e11;
  return `-m statistic --mode random --probability ${probability.toFixed(11)}`;
}

export const NEW = '-m conntrack --ctstate NEW';
export const FROM_NODE = '-m addrtype --src-type LOCAL';
export const TO_NODE = '-m addrtype --dst-type LOCAL';

/**
 * Renders rules that reject; TCP by reset, because the kernel limits ICMP errors to about one per second
 * and client.
 */
export function rejectRules(match: Match, family: IPFamily): Rule[] {
  const unreachable = `-j REJECT --reject-with ${family === 'ipv4' ? 'icmp' : 'icmp6'}-port-unreachable`;
  if (match.protocol === 'TCP') return [rule(match, '-j REJECT --reject-with tcp-reset')];
  if (match.protocol) return [rule(match, unreachable)];
  return [rule({ ...match, protocol: 'TCP' }, '-j REJECT --reject-with tcp-reset'), rule(match, unreachable)];
}

/**
 * Matches for this cluster's pods and for all other sources; null if the configuration does not identify
 * pods of this family.
 */
export interface PodMatch {
  readonly pods: Match;
  readonly others: Match;
}

export function podMatch(detection: LocalDetection, family: IPFamily): PodMatch | null {
  const found = podSource(detection, family);
  if (found === null) return null;
  if ('cidr' in found) {
    const { text } = found.cidr;
    return { pods: { source: text }, others: { source: `! ${text}` } };
  }
  const name = found.isPrefix ? `${found.device}+` : found.device;
  return { pods: { inInterface: name }, others: { inInterface: `! ${name}` } };
}

/** Returns the text of a comment: "shop/web:http cluster IP". */
export const commentFor = (owner: PortRef, words = ''): string => `${portName(owner)} ${words}`.trim();

/** Returns the network with these first hexadecimal digits of the address. */
export function networkOf(digits: string, family: IPFamily): string {
  const bytes = new Uint8Array(family === 'ipv4' ? 4 : 16);
  const padded = digits.padEnd(bytes.length * 2, '0');
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(padded.slice(i * 2, i * 2 + 2), 16);
  return `${formatAddress(bytes)}/${digits.length * 4}`;
}

/** Returns an address's hexadecimal digits: 8 or 32. */
export function addressDigits(address: string): string {
  return Buffer.from(addressBytes(address) ?? new Uint8Array(0)).toString('hex');
}
