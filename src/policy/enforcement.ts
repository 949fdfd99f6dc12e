import type { NetnsRef } from '../kernel/netns.ts';
import { formatAddress, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createReconcileLoop, type Programmed } from '../lib/reconcile-loop.ts';
import type { ElementGroup } from '../nft/spec.ts';
import type { Table } from '../nft/table.ts';
import { Tables } from '../nft/tables.ts';
import { DIRECTIONS, type Direction, type PolicyChange } from './model.ts';
import type { NameEnforcement } from './name-enforcement.ts';
import { canDeny, DENIED, deniedChain, UNMATCHED } from './policy-chain-names.ts';
import type { PolicyTable } from './policy-table.ts';
import {
  createPolicyRendering,
  POLICY_TABLE,
  type PolicyRendering,
  PROXIES_OWNER,
  podOwner,
  policyOwner,
} from './render.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
/** The start of a pod waits for its policies for less than twice this. */
const MAX_RETRY_MS = 5000;
/** New refusals that are logged at a time. */
const MAX_LOGGED = 10;
/** Interval at which the kernel is compared with the expected state. */
const VERIFY_MS = 60_000;
/**
 * Unreferenced chains stay until their number exceeds that of the others by this; then the table is
 * rewritten.
 */
const SPARE_CHAINS = 64;

/** The result of programming policies. */
export interface PolicyProgramming {
  /** Number of messages and elements. */
  readonly operations: number;
  /** From the first change that it contains until the kernel has it. */
  readonly latencyMs: number;
}

/** Packets of one family that were dropped at a pod. */
export interface DeniedPod {
  readonly family: IPFamily;
  readonly direction: Direction;
  /** "namespace/name" */
  readonly pod: string;
  /** The key of the policy whose rule denied them; null: no rule of the pod's NetworkPolicies allowed them. */
  readonly policy: string | null;
  readonly packets: number;
}

/** Elements that the kernel rejects. They are left out of its tables, and tried again later. */
export interface PolicyRefusal {
  readonly family: IPFamily;
  /** Of a pod: its isolation, and its part in the rules of other pods. Of a policy: its addresses and ports. */
  readonly kind: 'pod' | 'policy' | 'proxies';
  /** The key of the pod or policy. */
  readonly key: string;
  readonly error: Error;
}

export interface EnforcementOptions {
  readonly policies: PolicyTable;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly netns?: NetnsRef;
  /** See `PolicyRenderOptions.proxies`. */
  readonly proxies?: () => readonly string[] | null;
  /** Keeps the sets of names; absent: rules with names match nothing. */
  readonly names?: NameEnforcement;
  readonly onProgrammed?: (done: PolicyProgramming) => void;
  readonly onFailure?: (error: unknown) => void;
  /** Called with refusals that are new, or have a new reason. */
  readonly onRefused?: (fresh: readonly PolicyRefusal[]) => void;
}

/**
 * Keeps a node's nf_tables in sync with its policies. The tables stay after it is closed; the next agent
 * adopts them.
 */
export interface Enforcement {
  /** Announces that the table of policies may have changed. */
  changed(): void;
  /** Announces that an input other than the table of policies has changed: everything is rewritten. */
  rewrite(): void;
  /**
   * Announces that the addresses of the other nodes' proxies have changed, but not whether there are any.
   */
  proxiesChanged(): void;
  /** Resolves when the kernel has the state of the table of policies at the time of the call, except for `refusals`. */
  programmed(): Promise<void>;
  /** Returns the elements that are not in the kernel because it rejects them. */
  refusals(): readonly PolicyRefusal[];
  /**
   * Returns the refusal without whose elements more reaches a pod, or leaves it, than its policies allow; null: none. Without
   * the elements of a NetworkPolicy less does.
   */
  exposes(pod: string): PolicyRefusal | null;
  /** Returns the number of elements in the kernel's sets. */
  elements(): number;
  /**
   * Returns the number of packets dropped since the first programming, including those counted in a table
   * that an earlier agent left.
   */
  denied(family: IPFamily, direction: Direction): number;
  /**
   * Returns the packets to or from pods of this node that were dropped since the first programming, by pod and by what
   * dropped them. Counts of pods that are gone are left out.
   */
  deniedPods(): readonly DeniedPod[];
  /** Stops after the write in progress. */
  close(): Promise<void>;
}

export function startEnforcement(options: EnforcementOptions): Enforcement {
  const { policies, clock, logger, netns, proxies, names, onProgrammed, onFailure, onRefused } = options;
  const tables = new Tables({
    families: FAMILIES,
    name: POLICY_TABLE,
    netns,
    clock,
    logger,
    restore: names && ((set, elements, family) => names.restore(set, elements, family)),
    fill: names && ((set, family) => names.fill(set, family)),
    onForeignChange: () => {
      logger.warn({}, 'another program changed the rules of the network policies; rewriting them');
      rewrite();
    },
  });
  let renderings = renderAll();
  const chainsWritten = new Map<Table, number>();
  let haveProxiesChanged = false;
  let changedAt: number | null = null;
  let isClosed = false;
  const loop = createReconcileLoop('policy enforcement', {
    program,
    verify,
    verifyPeriodMs: VERIFY_MS,
    minPeriodMs: 0,
    maxBackoffMs: MAX_RETRY_MS,
    clock,
    onFailed(error, { retryMs }) {
      onFailure?.(error);
      logger.error({ err: error, retryMs }, `failed to program network policies: ${messageOf(error)}`);
    },
  });

  function renderAll(): ReadonlyMap<IPFamily, PolicyRendering> {
    const options = { proxies, noteSecret: names?.secret };
    return new Map(
      FAMILIES.map((family) => [family, createPolicyRendering(policies, { family, ...options })]),
    );
  }

  function ask(): void {
    changedAt ??= performance.now();
    loop.changed();
  }

  function rewrite(): void {
    changedAt ??= performance.now();
    loop.rewrite();
  }

  async function program(whole: boolean): Promise<Programmed> {
    const started = changedAt ?? performance.now();
    changedAt = null;
    const others = haveProxiesChanged;
    haveProxiesChanged = false;
    const change = policies.commit();
    let operations = 0;
    names?.podsChanged(whole ? policies.all().pods : change.pods);
    if (whole) renderings = renderAll();
    const failures: unknown[] = [];
    for (const table of tables) {
      try {
        operations += await write(table, change, others, whole);
      } catch (error) {
        // The policies of the other family are programmed all the same.
        failures.push(error);
      }
    }
    await removeNames();
    reportRefusals();
    if (failures.length > 0) {
      changedAt ??= started;
      throw failures[0];
    }
    if (operations > 0) onProgrammed?.({ operations, latencyMs: performance.now() - started });
    // All refusals are tried again later, as the cause may be gone: memory, or a duplicate.
    return { refused: refused.length > 0, dirty: policies.hasChanges };
  }

  let refused: readonly PolicyRefusal[] = [];

  /** Removes the names' addresses of pods that are gone, or no longer have such rules: their own address may become another pod's. */
  async function removeNames(): Promise<void> {
    for (const [family, sets] of names?.programmed() ?? []) {
      for (const [set, keys] of sets) {
        try {
          await tables.get(family)?.discard(set, keys);
        } catch (error) {
          logger.warn(
            { err: error, set },
            `cannot remove the addresses of names of a pod: ${messageOf(error)}`,
          );
          loop.rewrite();
        }
      }
    }
  }

  /** Reports new refusals. */
  function reportRefusals(): void {
    const known = new Set(refused.map(refusalText));
    refused = [...tables].flatMap(({ family, refused: owners }) =>
      [...owners].map(([owner, error]) => ({ family, ...ownerOf(owner), error })),
    );
    const fresh = refused.filter((one) => !known.has(refusalText(one)));
    for (const { family, kind, key, error } of fresh.slice(0, MAX_LOGGED))
      logger.error({ family, [kind]: key, err: error }, `not programmed: ${error.message}`);
    if (fresh.length > 0) onRefused?.(fresh);
  }

  /** Returns the number of messages and elements. */
  async function write(table: Table, change: PolicyChange, others: boolean, whole: boolean): Promise<number> {
    const rendering = renderings.get(table.family);
    if (!rendering) return 0;
    if (!policies.isolatesPods(table.family)) {
      if (!whole && !table.isWritten) return 0;
      rendering.reset();
      const isThere = table.exists();
      countAll(table);
      await table.remove();
      countAll(table);
      return isThere ? 1 : 0;
    }
    if (!whole && table.isWritten) {
      const groups = new Map<string, ElementGroup | null>();
      for (const key of change.policies) groups.set(policyOwner(key), rendering.policy(key));
      for (const key of change.pods) groups.set(podOwner(key), rendering.pod(key));
      if (others) groups.set(PROXIES_OWNER, rendering.proxies());
      // A changed policy has new sets, whose counters start at zero.
      const isCounted = change.policies.size > 0;
      if (isCounted) countDeniedPods(table);
      const { operations } = groups.size > 0 ? await table.change(groups) : { operations: 0 };
      if (isCounted) countDeniedPods(table);
      if (table.chains.size <= 2 * (chainsWritten.get(table) ?? 0) + SPARE_CHAINS) return operations;
    }
    rendering.reset();
    const spec = rendering.table();
    if (!spec) return 0;
    countAll(table);
    const replace = () => table.replace(spec);
    const { operations } = await (names?.replacing(replace) ?? replace());
    countAll(table);
    chainsWritten.set(table, table.chains.size);
    return operations;
  }

  /**
   * By chain and family: the last value of the counter in the kernel, and the sum of the counters in
   * earlier tables.
   */
  const counts = new Map<string, { last: number; before: number }>();

  function countDenied(table: Table): void {
    for (const direction of DIRECTIONS) {
      const key = `${table.family} ${direction}`;
      const count = counts.get(key) ?? { last: 0, before: 0 };
      counts.set(key, count);
      const shown = table.packets(DENIED[direction]);
      // A replaced table starts its counters at zero.
      if (shown < count.last) count.before += count.last;
      count.last = shown;
    }
  }

  /** Called before and after a table is replaced: counters that start again at zero are recognized by their value. */
  function countAll(table: Table): void {
    countDenied(table);
    countDeniedPods(table);
  }

  /** By family, direction, policy and pod, like `counts`. */
  const podCounts = new Map<string, { last: number; before: number; denied: Omit<DeniedPod, 'packets'> }>();

  function countDeniedPods(table: Table): void {
    const { family } = table;
    const shown = new Map<string, number>();
    const count = (set: string, direction: Direction, policy: string | null) => {
      for (const { key, packets } of table.read(set)) {
        const pod = policies.podAt(formatAddress(key))?.key;
        if (pod === undefined) continue;
        const id = `${family} ${direction} ${policy ?? ''} ${pod}`;
        if (packets > 0 && !podCounts.has(id))
          podCounts.set(id, { last: 0, before: 0, denied: { family, direction, pod, policy } });
        shown.set(id, (shown.get(id) ?? 0) + packets);
      }
    };
    const cluster = policies.clusterPolicies();
    for (const direction of DIRECTIONS) {
      count(UNMATCHED[direction], direction, null);
      for (const policy of cluster)
        if (canDeny(policy, direction)) count(deniedChain(policy, direction), direction, policy.key);
    }
    for (const [id, one] of podCounts) {
      if (one.denied.family !== family) continue;
      if (policies.programmed(one.denied.pod) === null) {
        podCounts.delete(id);
        continue;
      }
      const packets = shown.get(id) ?? 0;
      if (packets < one.last) one.before += one.last;
      one.last = packets;
    }
  }

  async function verify(): Promise<boolean> {
    if (!tables.areWritten) return false;
    try {
      const differences = await tables.verify();
      if (differences.length === 0) return false;
      logger.warn(
        { differences: differences.slice(0, 5) },
        'the rules of the network policies differ; repairing',
      );
      return true;
    } catch (error) {
      logger.warn({ err: error }, `failed to verify the rules of the network policies: ${messageOf(error)}`);
      return false;
    }
  }

  return {
    changed() {
      if (policies.hasChanges || loop.lastAppliedAt === null) ask();
    },
    rewrite,
    proxiesChanged() {
      haveProxiesChanged = true;
      ask();
    },
    programmed() {
      if (policies.hasChanges) ask();
      return loop.settled();
    },
    refusals: () => refused,
    exposes(pod) {
      if (refused.length === 0) return null;
      const isolating = new Set(
        DIRECTIONS.flatMap((direction) => policies.programmed(pod)?.isolatedBy[direction] ?? []),
      );
      const mayExpose = ({ kind, key }: PolicyRefusal) => {
        if (kind === 'pod') return key === pod;
        if (kind === 'proxies' || !isolating.has(key)) return false;
        const policy = policies.activePolicy(key);
        return policy !== null && DIRECTIONS.some((direction) => canDeny(policy, direction));
      };
      return refused.find(mayExpose) ?? null;
    },
    elements: () => [...tables].reduce((sum, table) => sum + table.elementCount, 0),
    denied(family, direction) {
      const table = tables.get(family);
      if (table && !isClosed) countDenied(table);
      const { last, before } = counts.get(`${family} ${direction}`) ?? { last: 0, before: 0 };
      return last + before;
    },
    deniedPods() {
      if (!isClosed) for (const table of tables) countDeniedPods(table);
      return [...podCounts.values()].map(({ denied, last, before }) => ({
        ...denied,
        packets: last + before,
      }));
    },
    async close() {
      isClosed = true;
      await loop.close();
      tables.close();
      names?.close();
    },
  };
}

const refusalText = ({ family, kind, key, error }: PolicyRefusal) =>
  `${family} ${kind} ${key} ${error.message}`;

/** Returns the pod or policy of an owner of elements. */
function ownerOf(owner: string): Pick<PolicyRefusal, 'kind' | 'key'> {
  const [first = '', ...rest] = owner.split(' ');
  const key = rest.join(' ');
  return first === 'pod' || first === 'policy' ? { kind: first, key } : { kind: 'proxies', key: '' };
}

/** Removes the tables from a node, also those of an earlier agent. */
export async function removePolicies(netns?: NetnsRef): Promise<void> {
  const tables = new Tables({ families: FAMILIES, name: POLICY_TABLE, netns });
  try {
    await tables.remove();
  } finally {
    tables.close();
  }
}
