/**
 * How long programming takes, and what it keeps: N Services with 10 endpoints each, in a network namespace made for
 * it. Fairlead's nftables and iptables modes, and IPVS where the kernel has it; the map elements of the nftables mode
 * alone, which is the least that its design can take; and kube-proxy's layouts (a chain per Service and per endpoint)
 * by `nft -f` and `iptables-restore`.
 *
 * node bench/programming.ts [--services 1000,10000,30000] [--only SUBJECT,…] [--slow-up-to 1000]
 * tests/vm/run-in-vm --kernel uml-6.12 -- node bench/programming.ts --only nftables,ipvs
 *
 * Subjects whose cold start takes seconds to minutes run up to `--slow-up-to` Services only.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { createIptables } from '../src/dataplane/iptables/iptables.ts';
import { createIpvs } from '../src/dataplane/ipvs/ipvs.ts';
import { createNftables } from '../src/dataplane/nftables/nftables.ts';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { ebpfMaps, ebpfMode } from './ebpf-maps.ts';
import { measureElements } from './programming-elements.ts';
import type { Measurement } from './programming-measurement.ts';
import { measureMode } from './programming-mode.ts';
import { ms, printMeasurements } from './programming-table.ts';
import { measureNftText, measureRestoreText } from './programming-text.ts';

interface Subject {
  readonly title: string;
  readonly slow: boolean;
  /** A subject that the kernel does not support is left out, unless it is selected explicitly. */
  readonly isAvailable?: () => boolean;
  measure(netns: string, services: number): Promise<Measurement>;
}

const SUBJECTS: Readonly<Record<string, Subject>> = {
  nftables: {
    title: 'Fairlead, nftables',
    slow: false,
    measure: (netns, n) => measureMode(createNftables({ families: ['ipv4'], netns }), n),
  },
  ipvs: {
    title: 'Fairlead, IPVS',
    slow: false,
    // Few kernels support it: tests/vm/run-in-vm runs this in one that does.
    isAvailable: () => existsSync('/proc/net/ip_vs'),
    measure: (netns, n) => measureMode(createIpvs({ families: ['ipv4'], netns }), n),
  },
  elements: { title: '· its map elements alone', slow: false, measure: measureElements },
  ebpf: {
    title: 'Fairlead, eBPF (and its nftables)',
    slow: false,
    measure: (netns, n) => measureMode(ebpfMode(netns), n),
  },
  'ebpf-maps': {
    title: '· its BPF maps alone',
    slow: false,
    measure: (_netns, n) => measureMode(ebpfMaps(), n),
  },
  'iptables-legacy': {
    title: 'Fairlead, iptables (legacy)',
    slow: true,
    measure: (netns, n) => measureMode(createIptables({ families: ['ipv4'], variant: 'legacy', netns }), n),
  },
  'iptables-nft': {
    title: 'Fairlead, iptables (nft)',
    slow: true,
    measure: (netns, n) => measureMode(createIptables({ families: ['ipv4'], variant: 'nft', netns }), n),
  },
  'nft-f': { title: 'kube-proxy’s layout, nft -f', slow: true, measure: measureNftText },
  'restore-legacy': {
    title: 'kube-proxy’s, iptables-legacy-restore',
    slow: true,
    measure: (netns, n) => measureRestoreText('iptables-legacy-restore', netns, n),
  },
  'restore-nft': {
    title: 'kube-proxy’s, iptables-nft-restore',
    slow: true,
    measure: (netns, n) => measureRestoreText('iptables-nft-restore', netns, n),
  },
};

/** Measures one subject in a separate process and namespace. */
async function inProcess(subject: string, services: number): Promise<Measurement> {
  const child = spawn(
    process.execPath,
    [
      ...process.execArgv,
      '--expose-gc',
      import.meta.filename,
      '--measure',
      subject,
      '--services',
      String(services),
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk;
  });
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  // Only a killed process leaves its namespace.
  removeNetns(namespaceOf(child.pid ?? 0));
  if (status !== 0) throw new Error(`${subject} with ${services} Services ended with status ${status}`);
  return JSON.parse(output) as Measurement;
}

const namespaceOf = (pid: number): string => `flb-${pid}-programming`;

async function measureHere(subject: string, services: number): Promise<void> {
  const netns = namespaceOf(process.pid);
  createNetns(netns);
  try {
    const measurement = await SUBJECTS[subject]?.measure(netns, services);
    process.stdout.write(JSON.stringify(measurement ?? null));
  } finally {
    removeNetns(netns);
  }
}

const { values: args } = parseArgs({
  options: {
    services: { type: 'string', default: '1000,10000,30000' },
    only: { type: 'string' },
    'slow-up-to': { type: 'string', default: '1000' },
    measure: { type: 'string' },
  },
});

if (args.measure !== undefined) {
  await measureHere(args.measure, Number(args.services));
} else {
  console.log(
    `node ${process.version}, ${cpus().length} x ${cpus()[0]?.model ?? 'unknown processor'}; “+1 endpoint” and “+1 Service” are medians from API object to committed; kernel MB is of the whole machine`,
  );
  const only =
    args.only?.split(',') ?? Object.keys(SUBJECTS).filter((name) => SUBJECTS[name]?.isAvailable?.() ?? true);
  for (const services of args.services.split(',').map(Number)) {
    const results = new Map<string, Measurement>();
    for (const subject of only) {
      const known = SUBJECTS[subject];
      if (!known) throw new Error(`--only: ${subject} is none of ${Object.keys(SUBJECTS).join(', ')}`);
      if (known.slow && services > Number(args['slow-up-to'])) continue;
      const measurement = await inProcess(subject, services);
      results.set(subject, measurement);
      // The table is printed after all subjects, which may be after an hour.
      const { cold, endpointAdded } = measurement;
      console.error(
        `${services} Services, ${known.title}: cold ${ms(cold.total)}, +1 endpoint ${ms(endpointAdded?.total)}`,
      );
    }
    printMeasurements(services, results, (subject) => SUBJECTS[subject]?.title ?? subject);
  }
}
