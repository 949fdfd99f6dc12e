import { PROBABILITY_UNITS, probabilityText } from '../../kernel/xtables/matches.ts';
import { addressBytes, formatAddress, type IPFamily } from '../../lib/address.ts';
import { podSource } from '../../service/classify.ts';
import type { LocalDetection, PortRef, Protocol } from '../../service/model.ts';
import { portName } from '../rules/frontend-keys.ts';

/**
 * A rule without "-A CHAIN ", in the order and form of iptables-save, so that written and listed rules can be compared as
 * text.
 */
export type Rule = string;

/** Compares rules regardless of quotes: versions of iptables differ in when they quote a comment. */
export const sameRule = (a: Rule, b: Rule): boolean =>
  a === b || a.replaceAll('"', '') === b.replaceAll('"', '');

export const sameRules = (a: readonly Rule[] | undefined, b: readonly Rule[]): boolean =>
  a?.length === b.length && a.every((line, i) => sameRule(line, b[i] ?? ''));

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

/** Returns a match with a probability of 1/n. */
export const chance = (n: number): string =>
  `-m statistic --mode random --probability ${probabilityText(Math.round(PROBABILITY_UNITS / n))}`;

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
