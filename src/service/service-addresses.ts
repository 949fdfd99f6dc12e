import { type Cidr, FAMILY_NAMES, type IPFamily, sloppyCidr } from '../lib/address.ts';
import { addressFamily, readAddress, unusableAs } from './address-text.ts';
import { asRecord, type FindingList, type Raw, show } from './finding-list.ts';
import type { ParsedService } from './parsed-service.ts';

const NOT_OPEN: ParsedService['sourceRanges'] = { ipv4: null, ipv6: null };

/** Returns the cluster IP of each family, the first valid one; null if there is none at all. */
export function readClusterIPs(spec: Raw, findings: FindingList): ParsedService['clusterIP'] | null {
  const several = findings.list(spec, 'clusterIPs', 'spec.clusterIPs');
  const path = several.length > 0 ? 'spec.clusterIPs' : 'spec.clusterIP';
  const values = several.length > 0 ? several : [findings.text(spec, 'clusterIP', 'spec.clusterIP')];
  const found: Record<IPFamily, string | null> = { ipv4: null, ipv6: null };
  for (const value of values) {
    if (value === '' || value === 'None') continue;
    const address = readAddress(value);
    if (address === null || unusableAs(address) !== null) {
      findings.add('InvalidClusterIP', path, `${show(value)} is not a valid address of a Service`, 'error');
    } else found[addressFamily(address)] ??= address;
  }
  return found.ipv4 === null && found.ipv6 === null ? null : found;
}

/** Returns the usable addresses of a list, canonical, without duplicates. */
export function readAddresses(
  parent: Raw,
  field: string,
  path: string,
  reason: string,
  findings: FindingList,
): string[] {
  const found = new Set<string>();
  for (const [i, value] of findings.list(parent, field, path).entries()) {
    const address = readAddress(value);
    const unusable = address === null ? 'not an IP address' : unusableAs(address);
    if (address === null || unusable !== null) {
      findings.add(reason, `${path}[${i}]`, `${show(value)} is ${unusable}: replace or remove it`);
    } else found.add(address);
  }
  return [...found];
}

/** Returns load balancer addresses whose packets arrive here unchanged (ipMode VIP, or none). */
export function readIngress(raw: Raw, findings: FindingList): string[] {
  const status = findings.record(raw, 'status', 'status');
  const balancer = findings.record(status, 'loadBalancer', 'status.loadBalancer');
  const path = 'status.loadBalancer.ingress';
  const vips: { ip: unknown; at: number }[] = [];
  for (const [at, item] of findings.list(balancer, 'ingress', path).entries()) {
    const ingress = asRecord(item);
    if (!ingress) {
      findings.add('InvalidField', `${path}[${at}]`, 'must be an object with ip or hostname');
      continue;
    }
    const { ip, ipMode } = ingress;
    // Entries with only a hostname, and balancers that translate to the node port themselves, need no
    // frontend.
    if (ip === undefined || ip === null || ip === '' || ipMode === 'Proxy') continue;
    if (ipMode !== undefined && ipMode !== null && ipMode !== 'VIP') {
      findings.add('InvalidField', `${path}[${at}].ipMode`, `${show(ipMode)} is unknown: use VIP or Proxy`);
      continue;
    }
    vips.push({ ip, at });
  }
  const found = new Set<string>();
  for (const { ip, at } of vips) {
    const address = readAddress(ip);
    const unusable = address === null ? 'not an IP address' : unusableAs(address);
    if (address === null || (unusable !== null && unusable !== 'a link-local address')) {
      findings.add(
        'InvalidLoadBalancerIP',
        `${path}[${at}].ip`,
        `${show(ip)} is ${unusable}: replace or remove it`,
      );
    } else found.add(address);
  }
  return [...found];
}

/**
 * Returns the ranges per family. A family without any range is open to all clients, as upstream has it,
 * with a finding; a family whose ranges are all invalid is closed.
 */
export function readSourceRanges(
  spec: Raw,
  vips: readonly string[],
  findings: FindingList,
): ParsedService['sourceRanges'] {
  const path = 'spec.loadBalancerSourceRanges';
  const values = findings.list(spec, 'loadBalancerSourceRanges', path);
  if (values.length === 0) return NOT_OPEN;
  const ranges: Record<IPFamily, Map<string, Cidr> | null> = { ipv4: null, ipv6: null };
  for (const [i, value] of values.entries()) {
    const cidr = typeof value === 'string' ? sloppyCidr(value) : null;
    const family = cidr?.family ?? (String(value).includes(':') ? 'ipv6' : 'ipv4');
    const known = ranges[family] ?? new Map<string, Cidr>();
    ranges[family] = known;
    if (cidr) known.set(cidr.text, cidr);
    else {
      const problem = `${show(value)} is not a network such as 10.0.0.0/8 and is ignored`;
      findings.add('InvalidSourceRange', `${path}[${i}]`, problem, 'error');
    }
  }
  for (const family of new Set(vips.map(addressFamily))) {
    if (ranges[family]) continue;
    const label = FAMILY_NAMES[family];
    const all = family === 'ipv4' ? '0.0.0.0/0' : '::/0';
    findings.add(
      'SourceRangesMissFamily',
      path,
      `has no ${label} range, so all ${label} clients are allowed: add ${all} if this is intended, else a range`,
    );
  }
  return {
    ipv4: ranges.ipv4 && [...ranges.ipv4.values()],
    ipv6: ranges.ipv6 && [...ranges.ipv6.values()],
  };
}
