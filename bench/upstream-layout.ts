import { clusterIP, podAddress } from './large-cluster.ts';

/**
 * The rules that kube-proxy writes for ClusterIP Services of one TCP port, in its layouts: a chain per
 * Service and a chain per endpoint, as text for `nft -f -` and `iptables-restore`. Chains have numbers
 * instead of hashes.
 */

export interface NumberedService {
  readonly index: number;
  readonly pods: readonly number[];
}

const TABLE = 'ip kube-proxy';
const POD_NETWORK = '10.0.0.0/8';
const serviceChain = (index: number) => `service-${index}/tcp/http`;
const endpointChain = (index: number, pod: number) => `endpoint-${index}/tcp/http__${podAddress(pod)}/8080`;

/** Returns the whole table, as written by the first sync of nftables mode. */
export function nftTable(services: readonly NumberedService[]): string {
  const lines = [`add table ${TABLE}`];
  for (const [name, type, hook, priority] of [
    ['filter-prerouting', 'filter', 'prerouting', -110],
    ['filter-input', 'filter', 'input', -110],
    ['filter-forward', 'filter', 'forward', -110],
    ['filter-output', 'filter', 'output', -110],
    ['nat-prerouting', 'nat', 'prerouting', -100],
    ['nat-output', 'nat', 'output', -100],
    ['nat-postrouting', 'nat', 'postrouting', 100],
  ] as const) {
    lines.push(`add chain ${TABLE} ${name} { type ${type} hook ${hook} priority ${priority} ; }`);
  }
  for (const chain of [
    'services',
    'masquerading',
    'mark-for-masquerade',
    'endpoints-check',
    'firewall-check',
  ]) {
    lines.push(`add chain ${TABLE} ${chain}`);
  }
  for (const map of ['service-ips', 'no-endpoint-services', 'firewall-ips']) {
    lines.push(`add map ${TABLE} ${map} { type ipv4_addr . inet_proto . inet_service : verdict ; }`);
  }
  const key = 'ip daddr . meta l4proto . th dport';
  const rules: readonly (readonly [chain: string, rule: string])[] = [
    ['filter-input', 'ct state new jump endpoints-check'],
    ['filter-forward', 'ct state new jump endpoints-check'],
    ['filter-output', 'ct state new jump endpoints-check'],
    ['filter-prerouting', 'ct state new jump firewall-check'],
    ['nat-prerouting', 'jump services'],
    ['nat-output', 'jump services'],
    ['nat-postrouting', 'jump masquerading'],
    ['mark-for-masquerade', 'mark set mark or 0x4000'],
    ['masquerading', 'mark and 0x4000 == 0 return'],
    ['masquerading', 'mark set mark xor 0x4000'],
    ['masquerading', 'masquerade fully-random'],
    ['endpoints-check', `${key} vmap @no-endpoint-services`],
    ['firewall-check', `${key} vmap @firewall-ips`],
    ['services', `${key} vmap @service-ips`],
  ];
  for (const [chain, rule] of rules) lines.push(`add rule ${TABLE} ${chain} ${rule}`);
  for (const service of services) lines.push(...nftService(service));
  return `${lines.join('\n')}\n`;
}

/** Returns one Service, new or rewritten; `gone`: an endpoint to remove. */
export function nftService({ index, pods }: NumberedService, gone?: number): string[] {
  const chain = serviceChain(index);
  const ip = clusterIP(index);
  const lines: string[] = [];
  for (const pod of pods) {
    lines.push(
      `add chain ${TABLE} ${endpointChain(index, pod)}`,
      `flush chain ${TABLE} ${endpointChain(index, pod)}`,
    );
  }
  lines.push(
    `add chain ${TABLE} ${chain}`,
    `flush chain ${TABLE} ${chain}`,
    `add element ${TABLE} service-ips { ${ip} . tcp . 80 : goto ${chain} }`,
    `add rule ${TABLE} ${chain} ip daddr ${ip} tcp dport 80 ip saddr != ${POD_NETWORK} jump mark-for-masquerade`,
    `add rule ${TABLE} ${chain} numgen random mod ${pods.length} vmap { ${pods
      .map((pod, i) => `${i} : goto ${endpointChain(index, pod)}`)
      .join(' , ')} }`,
  );
  for (const pod of pods) {
    const address = podAddress(pod);
    lines.push(
      `add rule ${TABLE} ${endpointChain(index, pod)} ip saddr ${address} jump mark-for-masquerade`,
      `add rule ${TABLE} ${endpointChain(index, pod)} meta l4proto tcp dnat to ${address}:8080`,
    );
  }
  if (gone !== undefined) lines.push(`delete chain ${TABLE} ${endpointChain(index, gone)}`);
  return lines;
}

/** Returns the removal of a Service. */
export function nftServiceGone({ index, pods }: NumberedService): string[] {
  return [
    `delete element ${TABLE} service-ips { ${clusterIP(index)} . tcp . 80 }`,
    `flush chain ${TABLE} ${serviceChain(index)}`,
    `delete chain ${TABLE} ${serviceChain(index)}`,
    ...pods.map((pod) => `delete chain ${TABLE} ${endpointChain(index, pod)}`),
  ];
}

const svc = (index: number) => `KUBE-SVC-${index}`;
const sep = (index: number, pod: number) => `KUBE-SEP-${index}-${pod}`;
const comment = (index: number) => `-m comment --comment "team-${index % 50}/service-${index}:http`;

/**
 * Returns the input of `iptables-restore --noflush`: the chain KUBE-SERVICES always completely, and of the
 * other chains those of `written`. `hooks`: with the rules that jump there, for the first sync.
 */
export function iptablesRestore(
  services: readonly NumberedService[],
  written: readonly NumberedService[],
  options: { hooks: boolean; gone?: { service: number; pods: readonly number[]; whole: boolean } },
): string {
  const lines = ['*nat', ':KUBE-SERVICES - [0:0]', ':KUBE-MARK-MASQ - [0:0]', ':KUBE-POSTROUTING - [0:0]'];
  const { hooks, gone } = options;
  for (const { index, pods } of written) {
    lines.push(`:${svc(index)} - [0:0]`);
    for (const pod of pods) lines.push(`:${sep(index, pod)} - [0:0]`);
  }
  if (gone?.whole) lines.push(`:${svc(gone.service)} - [0:0]`);
  for (const pod of gone?.pods ?? []) lines.push(`:${sep(gone?.service ?? 0, pod)} - [0:0]`);
  if (hooks) {
    lines.push(
      '-A PREROUTING -j KUBE-SERVICES',
      '-A OUTPUT -j KUBE-SERVICES',
      '-A POSTROUTING -j KUBE-POSTROUTING',
    );
  }
  lines.push(
    '-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000',
    '-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN',
    '-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000',
    '-A KUBE-POSTROUTING -j MASQUERADE --random-fully',
  );
  for (const { index } of services) {
    lines.push(
      `-A KUBE-SERVICES ${comment(index)} cluster IP" -m tcp -p tcp -d ${clusterIP(index)} --dport 80 -j ${svc(index)}`,
    );
  }
  for (const { index, pods } of written) {
    lines.push(
      `-A ${svc(index)} ${comment(index)} cluster IP" -m tcp -p tcp -d ${clusterIP(index)} --dport 80 ! -s ${POD_NETWORK} -j KUBE-MARK-MASQ`,
    );
    for (const [i, pod] of pods.entries()) {
      const address = podAddress(pod);
      const rest = pods.length - i;
      const chance = rest === 1 ? '' : ` -m statistic --mode random --probability ${(1 / rest).toFixed(10)}`;
      lines.push(
        `-A ${svc(index)} ${comment(index)} -> ${address}:8080"${chance} -j ${sep(index, pod)}`,
        `-A ${sep(index, pod)} ${comment(index)}" -s ${address} -j KUBE-MARK-MASQ`,
        `-A ${sep(index, pod)} ${comment(index)}" -m tcp -p tcp -j DNAT --to-destination ${address}:8080`,
      );
    }
  }
  if (gone?.whole) lines.push(`-X ${svc(gone.service)}`);
  for (const pod of gone?.pods ?? []) lines.push(`-X ${sep(gone?.service ?? 0, pod)}`);
  lines.push('COMMIT');
  return `${lines.join('\n')}\n`;
}
