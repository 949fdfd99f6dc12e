import { openCluster } from '../cluster/cluster-access.ts';
import {
  DEFAULT_DELAY_MS,
  FAULT_KINDS,
  type Fault,
  type FaultKind,
  MAX_DELAY_MS,
} from '../cluster/faults.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { usageError, wholeNumber } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { formatTable } from './table.ts';

const ACTIONS = [...FAULT_KINDS, 'undo'] as const;

/** The effect of a fault, in words. */
const EFFECTS: Readonly<Record<FaultKind, string>> = {
  silent: 'the pod gets no packets',
  cut: 'the uplink of the node carries no packets',
  slow: 'packets that leave or reach the node are delayed',
  drain: 'the node gets no new pods; its pods were evicted',
};

export const command = defineCommand({
  name: 'fault',
  summary: 'plant faults to see how the cluster reacts, list them, and undo them',
  description: [
    'Plants a fault in a local cluster: "silent POD" (the pod no longer answers), "cut NODE" (its uplink carries no packets, not even to the API server), "slow NODE" (packets that leave or reach it are delayed) and "drain NODE" (no new pods; its pods are evicted if a controller creates them again). Without arguments it lists the faults. "undo" undoes all of them, and so does "fairlead down".',
  ],
  arguments: [
    { name: 'KIND', optional: true, help: 'the fault', choices: ACTIONS },
    { name: 'TARGET', optional: true, help: 'POD: [NAMESPACE/]NAME; NODE: a name' },
  ],
  synopsis: ['[KIND TARGET]', 'undo'],
  options: {
    delay: wholeNumber('MS', [DEFAULT_DELAY_MS, 1, MAX_DELAY_MS], 'slow: the delay in milliseconds'),
    ...FORMAT_OPTIONS,
    name: NAME_OPTION,
  },
  examples: ['fault silent hello-tgldbct2xx-lbb45', 'fault slow node-2 --delay 300', 'fault', 'fault undo'],
  asUser: ({ options }) => ({ cluster: options.name }),
  async run({ options, args: [action, target], given }, output) {
    const kind = FAULT_KINDS.find((one) => one === action);
    if (kind && target === undefined) throw usageError('fault', 'missing TARGET');
    if (!kind && target !== undefined) throw usageError('fault', `${action} takes no TARGET`);
    if (given.has('delay') && kind !== 'slow') throw usageError('fault', '--delay applies to slow only');
    const access = (await openCluster(options.name)).faults;
    if (kind && target !== undefined) {
      const { fault, warnings } = await access.plant({ kind, target, delayMs: options.delay });
      for (const warning of warnings) output.err(`fairlead: ${warning}\n`);
      output.out(
        renderFacts({ planted: fault }, options) ?? `${fault.kind} ${fault.target}: ${EFFECTS[kind]}\n`,
      );
      return 0;
    }
    const isUndo = action === 'undo';
    const faults = await (isUndo ? access.undoAll() : access.list());
    const text = () => (isUndo ? undoneText(faults) : faultTable(faults, output.columns));
    output.out(
      renderFacts(isUndo ? { undone: faults } : { faults }, options) ??
        (faults.length === 0 ? 'no faults\n' : text()),
    );
    return 0;
  },
});

const undoneText = (faults: readonly Fault[]): string =>
  faults.map(({ kind, target }) => `undone: ${kind} ${target}\n`).join('');

const faultTable = (faults: readonly Fault[], columns: number | null): string =>
  formatTable(
    [['FAULT', 'TARGET', 'EFFECT'], ...faults.map(({ kind, target }) => [kind, target, EFFECTS[kind]])],
    columns,
  );
