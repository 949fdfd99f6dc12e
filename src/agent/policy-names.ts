import { randomBytes } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { Counter, Gauge } from 'prom-client';
import type { AnswerHold } from '../dns/answer-hold.ts';
import type { Informer } from '../kube/informer.ts';
import type { Node, Pod } from '../kube/types.ts';
import { type Cidr, parseCidr } from '../lib/address.ts';
import { insideCheck } from '../policy/inside-addresses.ts';
import { createLearnedNames, type LearnedNames } from '../policy/learned-names.ts';
import { createNameEnforcement, hasNameSets, type NameEnforcement } from '../policy/name-enforcement.ts';
import type { PolicyTable } from '../policy/policy-table.ts';
import type { AgentContext } from './agent-context.ts';
import { readKeptNames, writeKeptNames } from './kept-names.ts';
import { createNameGate, holdUntilStarted, type NameRefusal } from './name-gate.ts';

/** Below the state directory. */
const NAMES_FILE = 'policy-names.jsonl';
/** Interval at which expired addresses are forgotten, and the others kept in the file. */
const KEEP_MS = 10_000;
/** The networks of the cluster, and this machine's addresses, are looked up again after this. */
const LOOK_MS = 5000;
/** A pod gets an event for a reason at most this often. */
const EVENT_MS = 300_000;
const MAX_REPORTED = 4096;

/** The names in rules of a node's policies. */
export interface PolicyNames {
  /** What holds the answers of the node's DNS server. */
  readonly hold: AnswerHold;
  readonly names: NameEnforcement;
}

export interface PolicyNamesOptions {
  readonly table: PolicyTable;
  readonly learned: LearnedNames;
  readonly programmed: () => Promise<void>;
  /** Resolves when the policies that existed at the start are enforced. */
  readonly started: Promise<unknown>;
  /** Returns the object of a pod of this node, for events. */
  readonly podObject: (key: string) => Pod | null;
}

/** Creates the table of what pods got for names; `table`: which pods and nodes exist. */
export function createNodeNames(
  { configuration, clock }: Pick<AgentContext, 'configuration' | 'clock'>,
  nodes: Pick<Informer<Node>, 'list'>,
  table: () => PolicyTable,
): LearnedNames {
  const fixed = [...(configuration.proxy?.serviceCidrs ?? []), ...(configuration.proxy?.clusterCidrs ?? [])];
  const look = () => ({
    at: clock.now(),
    networks: [...fixed, ...nodes.list().flatMap(podNetworks)],
    own: new Set(Object.values(networkInterfaces()).flatMap((list) => list?.map((one) => one.address) ?? [])),
    nodes: new Set(
      nodes.list().flatMap(({ status }) => status?.addresses?.map(({ address }) => address) ?? []),
    ),
  });
  let found: ReturnType<typeof look> | null = null;
  const current = () => {
    if (found === null || Math.abs(clock.now() - found.at) > LOOK_MS) found = look();
    return found;
  };
  return createLearnedNames({
    now: () => performance.now(),
    wallClock: clock.now,
    isInside: insideCheck({
      networks: () => current().networks,
      isMember: (address) =>
        table().podAt(address) !== null ||
        table().nodeAt(address) !== null ||
        current().nodes.has(address) ||
        current().own.has(address),
    }),
  });
}

const podNetworks = ({ spec }: Node): Cidr[] => {
  const { podCIDRs = [], podCIDR } = (spec ?? {}) as { podCIDRs?: string[]; podCIDR?: string };
  return [...podCIDRs, ...(podCIDR === undefined ? [] : [podCIDR])].flatMap((text) => parseCidr(text) ?? []);
};

/** Starts what rules with names need, besides the enforcement of the policies. */
export function startPolicyNames(context: AgentContext, options: PolicyNamesOptions): PolicyNames {
  const { configuration, clock, registry } = context;
  const { table, learned, programmed, started, podObject } = options;
  const logger = context.logger.child({ part: 'policy' });
  const file = join(configuration.stateDir, NAMES_FILE);
  const names = createNameEnforcement({
    policies: table,
    learned,
    secret: randomBytes(16).toString('hex'),
    kept: readKeptNames(file, logger),
  });
  const refusals = new Counter({
    name: 'fairlead_policy_name_refused_total',
    help: 'DNS answers that left without allowing all of their addresses to the pod, by reason.',
    labelNames: ['reason'],
    registers: [registry],
  });
  for (const [name, help, value] of [
    ['names', 'Names for which pods of this node have addresses that policies allow.', 'names'],
    ['addresses', 'Addresses that policies allow pods of this node because of names.', 'addresses'],
    ['pods', 'Pods of this node whose policies have rules with names.', 'pods'],
  ] as const) {
    new Gauge({
      name: `fairlead_policy_name_${name}`,
      help,
      registers: [registry],
      collect() {
        learned.expire();
        this.set(learned.counts()[value]);
      },
    });
  }
  const reported = new Map<string, number>();
  const onRefused = (pod: string, name: string, refusal: NameRefusal, addresses: readonly string[]) => {
    refusals.inc({ reason: refusal });
    const now = clock.now();
    const key = `${pod} ${refusal}`;
    if (now - (reported.get(key) ?? Number.NEGATIVE_INFINITY) < EVENT_MS) return;
    if (reported.size >= MAX_REPORTED) reported.clear();
    reported.set(key, now);
    const message = refusalText(name, refusal, addresses);
    logger.warn({ pod, name }, message);
    const object = podObject(pod);
    if (object) context.podEvent(object, 'Warning', 'NameNotAllowed', message);
  };
  const gate = createNameGate({
    node: configuration.nodeName,
    ...{ policies: table, learned, names, programmed, clock, onRefused },
  });
  let written = learned.revision;
  const keep = () => {
    learned.expire();
    if (learned.revision === written) return;
    written = learned.revision;
    writeKeptNames(file, learned.kept(), logger);
  };
  const repeat = () => {
    keep();
    cancel = clock.after(KEEP_MS, repeat);
  };
  let cancel = clock.after(KEEP_MS, repeat);
  context.onClose(() => {
    cancel();
    keep();
  });
  return {
    hold: hasNameSets() ? holdUntilStarted(gate, started, clock) : gate,
    names: {
      ...names,
      get isReplacing() {
        return names.isReplacing;
      },
      podsChanged(keys) {
        names.podsChanged(keys);
        gate.reset();
      },
    },
  };
}

const MAX_SHOWN = 3;

function refusalText(name: string, refusal: NameRefusal, addresses: readonly string[]): string {
  const shown = `${addresses.slice(0, MAX_SHOWN).join(', ')}${addresses.length > MAX_SHOWN ? ', …' : ''}`;
  switch (refusal) {
    case 'address inside the cluster':
      return `${name} is allowed by a policy, but its address ${shown} is not: names allow addresses outside of the cluster only, none that are link-local or this node's; allow pods by their labels, other addresses by ipBlock or networks`;
    case 'not programmed':
      return `${name} was answered, but connections to ${shown} are not allowed yet: the kernel does not have the policies; ask for the name again`;
    default:
      return `${name} was answered, but not all of its addresses are allowed: the ${refusal} are at their bound; allow its networks instead, or ask for fewer names`;
  }
}
