import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { createServiceTable } from '../src/service/service-table.ts';
import { largeCluster, largeClusterNode, largeService, largeSlice } from './large-cluster.ts';
import {
  alternate,
  kernelMemory,
  type Measurement,
  PER_SERVICE,
  processorSince,
  type Step,
} from './programming-measurement.ts';

/** A cold start that takes less than this is repeated. */
const REPEATED_MS = 3000;
const REPEATS = 12;

/** Measures a mode of Fairlead: from API objects to the kernel. Closes it. */
export async function measureMode(dataplane: Dataplane, n: number): Promise<Measurement> {
  const cluster = largeCluster(n, PER_SERVICE);
  const table = createServiceTable(largeClusterNode());
  const before = kernelMemory();
  collectGarbage();
  const started = performance.now();
  for (const service of cluster.services) table.setService(service);
  for (const slice of cluster.slices) table.setSlice(slice);
  let { map } = table.commit();
  const compiled = performance.now();
  const sync = async (): Promise<Step> => {
    const start = performance.now();
    const before = process.cpuUsage();
    const { encodeMs, kernelMs, failed } = await dataplane.sync(map);
    if (failed[0]) throw failed[0].error;
    const total = performance.now() - start;
    return { total, encode: encodeMs, kernel: kernelMs, processor: processorSince(before) };
  };
  collectGarbage();
  const first = await sync();
  const kept = kernelMemory() - before;
  collectGarbage();
  const again = await sync();
  const commit = async (edit: () => void): Promise<Step> => {
    const start = performance.now();
    edit();
    const { map: next, change } = table.commit();
    const { encodeMs, kernelMs, failed } = await dataplane.apply(change, next);
    if (failed[0]) throw failed[0].error;
    map = next;
    return { total: performance.now() - start, encode: encodeMs, kernel: kernelMs, processor: null };
  };
  const pods = (i: number) => Array.from({ length: PER_SERVICE }, (_, e) => i * PER_SERVICE + e);
  const [endpointAdded, endpointRemoved] = await alternate(
    (k) => {
      const i = (k * 7919) % n;
      return commit(() => table.setSlice(largeSlice(i, [...pods(i), n * PER_SERVICE + k])));
    },
    (k) => {
      const i = (k * 7919) % n;
      return commit(() => table.setSlice(largeSlice(i, pods(i))));
    },
  );
  const [serviceAdded, serviceRemoved] = await alternate(
    (k) =>
      commit(() => {
        table.setService(largeService(n + k));
        table.setSlice(largeSlice(n + k, pods(n + k)));
      }),
    (k) =>
      commit(() => {
        table.deleteService(`team-${(n + k) % 50}`, `service-${n + k}`);
        table.deleteSlice(`team-${(n + k) % 50}`, `service-${n + k}-a`);
      }),
  );
  collectGarbage();
  const { rss, heapUsed: heap } = process.memoryUsage();
  const checking = performance.now();
  const drifts = await dataplane.verify();
  if (drifts[0]) throw new Error(`${drifts.length} differences, the first: ${drifts[0].object}`);
  const verify = performance.now() - checking;
  let cold = first;
  for (let i = 0; i < REPEATS && first.total < REPEATED_MS; i++) {
    await dataplane.remove();
    const step = await sync();
    if (step.total < cold.total) cold = step;
  }
  await dataplane.close();
  return {
    compile: compiled - started,
    first,
    cold,
    again,
    endpointAdded,
    endpointRemoved,
    serviceAdded,
    serviceRemoved,
    verify,
    rss,
    heap,
    kernelMemory: kept,
  };
}

/** Keeps the garbage of the steps before from being collected at the cost of the next one. */
function collectGarbage(): void {
  globalThis.gc?.();
}
