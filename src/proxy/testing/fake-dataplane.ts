import { NO_ABILITIES } from '../../dataplane/abilities.ts';
import type { ApplyReport, Dataplane, Drift, Mode } from '../../dataplane/dataplane.ts';

/** A dataplane without a kernel: it records the calls, with results that the test configures. */
export interface FakeDataplane extends Dataplane {
  readonly calls: string[];
  /** Errors of the next calls of `sync` and `apply`, in order. */
  readonly faults: Error[];
  readonly removalFaults: Error[];
  /** Frontends that every programming refuses. */
  readonly refused: Map<string, Error>;
  drifts: readonly Drift[];
  /** While set, calls wait for it. */
  gate: Promise<void> | null;
}

export function fakeDataplane(mode: Mode = 'nftables'): FakeDataplane {
  let isBusy = false;
  const call = async <T>(name: string, work: () => T): Promise<T> => {
    if (isBusy) throw new Error(`calls overlap at ${name}`);
    isBusy = true;
    try {
      fake.calls.push(name);
      await fake.gate;
      return work();
    } finally {
      isBusy = false;
    }
  };
  const program = (): ApplyReport => {
    const fault = fake.faults.shift();
    if (fault) throw fault;
    const failed = [...fake.refused].map(([key, error]) => ({ key, error }));
    return { encodeMs: 0, kernelMs: 0, operations: 1, failed };
  };
  const fake: FakeDataplane = {
    mode,
    families: ['ipv4'],
    abilities: NO_ABILITIES,
    calls: [],
    faults: [],
    removalFaults: [],
    refused: new Map(),
    drifts: [],
    gate: null,
    sync: () => call('sync', program),
    apply: () => call('apply', program),
    verify: () => call('verify', () => fake.drifts),
    remove: () =>
      call('remove', () => {
        const fault = fake.removalFaults.shift();
        if (fault) throw fault;
      }),
    locate: () => [],
    async close() {
      fake.calls.push('close');
    },
  };
  return fake;
}
