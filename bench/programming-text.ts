import { feedCommand } from './feed-command.ts';
import {
  alternate,
  kernelMemory,
  type Measurement,
  PER_SERVICE,
  type Step,
} from './programming-measurement.ts';
import {
  iptablesRestore,
  type NumberedService,
  nftService,
  nftServiceGone,
  nftTable,
} from './upstream-layout.ts';

const numbered = (n: number): NumberedService[] =>
  Array.from({ length: n }, (_, index) => ({
    index,
    pods: Array.from({ length: PER_SERVICE }, (_, e) => index * PER_SERVICE + e),
  }));

/** Measures kube-proxy's nftables layout with `nft -f`. */
export async function measureNftText(netns: string, n: number): Promise<Measurement> {
  const services = numbered(n);
  const more = (k: number) => {
    const service = services[(k * 7919) % n];
    if (!service) throw new RangeError();
    return { ...service, pods: [...service.pods, n * PER_SERVICE + k] };
  };
  const feedNft = (text: () => string) => feed(netns, 'nft', ['-f', '-'], text);
  return measureText(
    () => feedNft(() => nftTable(services)),
    (k) => feedNft(() => lines(nftService(more(k)))),
    (k) => {
      const { index, pods } = more(k);
      return feedNft(() => lines(nftService({ index, pods: pods.slice(0, -1) }, pods.at(-1))));
    },
    (k) => feedNft(() => lines(nftService({ index: n + k, pods: services[k % n]?.pods ?? [] }))),
    (k) => feedNft(() => lines(nftServiceGone({ index: n + k, pods: services[k % n]?.pods ?? [] }))),
  );
}

/** Measures kube-proxy's iptables layout with one of the tools `iptables-restore`. */
export async function measureRestoreText(tool: string, netns: string, n: number): Promise<Measurement> {
  const services = numbered(n);
  const at = (k: number) => {
    const service = services[(k * 7919) % n];
    if (!service) throw new RangeError();
    return service;
  };
  const feedTool = (text: () => string) => feed(netns, tool, ['--noflush'], text);
  const extra = (k: number) => ({ index: n + k, pods: at(k).pods });
  return measureText(
    () => feedTool(() => iptablesRestore(services, services, { hooks: true })),
    (k) =>
      feedTool(() =>
        iptablesRestore(services, [{ ...at(k), pods: [...at(k).pods, n * PER_SERVICE + k] }], {
          hooks: false,
        }),
      ),
    (k) =>
      feedTool(() => {
        const gone = { service: at(k).index, pods: [n * PER_SERVICE + k], whole: false };
        return iptablesRestore(services, [at(k)], { hooks: false, gone });
      }),
    (k) => feedTool(() => iptablesRestore([...services, extra(k)], [extra(k)], { hooks: false })),
    (k) =>
      feedTool(() => {
        const gone = { service: n + k, pods: extra(k).pods, whole: true };
        return iptablesRestore(services, [], { hooks: false, gone });
      }),
  );
}

type TextStep = (k: number) => Promise<Step>;

async function measureText(
  load: () => Promise<Step>,
  addEndpoint: TextStep,
  removeEndpoint: TextStep,
  addService: TextStep,
  removeService: TextStep,
): Promise<Measurement> {
  const before = kernelMemory();
  const cold = await load();
  const kept = kernelMemory() - before;
  const [endpointAdded, endpointRemoved] = await alternate(addEndpoint, removeEndpoint);
  const [serviceAdded, serviceRemoved] = await alternate(addService, removeService);
  return {
    compile: null,
    first: null,
    cold,
    again: null,
    endpointAdded,
    endpointRemoved,
    serviceAdded,
    serviceRemoved,
    verify: null,
    rss: null,
    heap: null,
    kernelMemory: kept,
  };
}

const lines = (all: readonly string[]): string => `${all.join('\n')}\n`;

/** A command's total time counts as the kernel's. */
async function feed(netns: string, file: string, args: readonly string[], text: () => string): Promise<Step> {
  const started = performance.now();
  const input = text();
  const encoded = performance.now();
  await feedCommand(netns, file, args, input);
  const done = performance.now();
  return { total: done - started, encode: encoded - started, kernel: done - encoded, processor: null };
}
