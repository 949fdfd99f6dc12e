import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Handlers } from '../kube/followed-objects.ts';
import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import { manualClock } from '../lib/clock.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { addressesOf } from './agent-context.ts';
import { openLateNetwork } from './late-network.ts';
import { nodeProblem, ownNodeOrSubstitute, podNetworkProblem, reportNodeProblems } from './own-node.ts';

const NAME = 'n';

/** A Node of type:address pairs, and its pod networks. */
function node(addresses: string[] = [], podCIDRs: string[] = [], name = NAME): Node {
  const status = {
    addresses: addresses.map((text) => {
      const [type = '', address = ''] = text.split(' ');
      return { type, address };
    }),
  };
  return { metadata: { name }, spec: { podCIDRs }, status };
}

/** The copy of Nodes of an agent; null deletes. */
function copyOf(first: Node | null): { nodes: Informer<Node>; set(next: Node | null): void } {
  let current = first;
  const handlers = new Set<Handlers<Node>>();
  const nodes = {
    get: (name: string) => (current?.metadata?.name === name ? current : undefined),
    handle(handler: Handlers<Node>) {
      handlers.add(handler);
      if (current) handler.onAdd?.(current);
      return () => handlers.delete(handler);
    },
    synced: Promise.resolve(),
  } as unknown as Informer<Node>;
  return {
    nodes,
    set(next) {
      const before = current;
      current = next;
      for (const handler of [...handlers]) {
        if (!next) handler.onDelete?.(before ?? {});
        else if (before) handler.onUpdate?.(next, before);
        else handler.onAdd?.(next);
      }
    },
  };
}

function heard(): { logger: Logger; lines: string[] } {
  const lines: string[] = [];
  const say = (level: string) => (_fields: object, message: string) =>
    void lines.push(`${level}: ${message}`);
  return { lines, logger: { ...silentLogger, info: say('info'), warn: say('warn') } };
}

const settle = async () => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};

const INTERNAL = node(['InternalIP 10.0.0.1']);
const EXTERNAL = node(['ExternalIP 192.0.2.1']);

const FIRST: {
  name: string;
  first: Node | null;
  /** Arrives after a second. */
  later?: Node;
  address?: string;
  /** The addresses that the agent starts with, and whether it waited for the whole patience. */
  wanted: string[];
  waited: boolean;
}[] = [
  { name: 'an internal address', first: INTERNAL, wanted: ['10.0.0.1'], waited: false },
  { name: 'an external address alone', first: EXTERNAL, wanted: ['192.0.2.1'], waited: false },
  {
    name: 'both: the internal one',
    first: node(['ExternalIP 192.0.2.1', 'InternalIP 10.0.0.1']),
    wanted: ['10.0.0.1'],
    waited: false,
  },
  { name: 'an address that arrives', first: node(), later: INTERNAL, wanted: ['10.0.0.1'], waited: false },
  { name: 'no address', first: node(['Hostname n']), wanted: [], waited: true },
  { name: 'no Node', first: null, wanted: [], waited: true },
  { name: 'another Node', first: node(['InternalIP 10.0.0.2'], [], 'other'), wanted: [], waited: true },
  { name: 'a configured address', first: node(), address: '10.9.9.9', wanted: ['10.9.9.9'], waited: false },
  {
    name: 'a configured address, no Node',
    first: null,
    address: '10.9.9.9',
    wanted: ['10.9.9.9'],
    waited: true,
  },
];

for (const { name, first, later, address = null, wanted, waited } of FIRST) {
  test(`the Node that an agent starts with: ${name}`, async () => {
    const clock = manualClock();
    const ending = new AbortController();
    const copy = copyOf(first);
    let found: Node | null = null;
    const waiting = ownNodeOrSubstitute({
      nodes: copy.nodes,
      name: NAME,
      address,
      clock,
      logger: silentLogger,
      signal: ending.signal,
      isComplete: (one) => addressesOf(one).length > 0,
    }).then((one) => {
      found = one;
    });
    await settle();
    clock.advance(1000);
    if (later) copy.set(later);
    await settle();
    assert.equal(found === null, waited);
    clock.advance(2000);
    await waiting;
    const known: Node = found ?? {};
    assert.deepEqual([known.metadata?.name, addressesOf(known)], [NAME, wanted]);
    ending.abort();
  });
}

const UNKNOWN =
  "warn: no such Node: n: set nodeName, --hostname-override or NODE_NAME to the name of this machine's Node";
const BARE = 'warn: Node n has neither an InternalIP nor an ExternalIP';
const REST = '; Services are programmed without node-dependent features, and /healthz answers 503';
const KNOWN = 'info: Node n and its address are known now';

const REPORTS: { name: string; address?: string; states: (Node | null)[]; said: string[] }[] = [
  { name: 'nothing lacks', states: [INTERNAL, EXTERNAL], said: [] },
  {
    name: 'an address arrives',
    states: [node(), node(['Hostname n']), INTERNAL],
    said: [BARE + REST, KNOWN],
  },
  { name: 'the Node arrives', states: [null, node(), EXTERNAL], said: [UNKNOWN + REST, BARE + REST, KNOWN] },
  { name: 'the Node is deleted', states: [INTERNAL, null, INTERNAL], said: [UNKNOWN + REST, KNOWN] },
  { name: 'the address is configured', address: '10.9.9.9', states: [node(), INTERNAL], said: [] },
];

for (const { name, address = null, states, said } of REPORTS) {
  test(`log of a Node: ${name}`, () => {
    const [first = null, ...rest] = states;
    const copy = copyOf(first);
    const { lines, logger } = heard();
    const stop = reportNodeProblems({ nodes: copy.nodes, name: NAME, address, logger });
    for (const state of rest) copy.set(state);
    stop();
    copy.set(null);
    assert.deepEqual(lines, said);
    const problem = nodeProblem(states.at(-1) ?? undefined, NAME, address);
    assert.equal(problem, null);
  });
}

const COMPLETE = node(['InternalIP 10.0.0.1'], ['10.244.0.0/24']);
const NO_CIDR =
  'the pod network is not open: Node n has no podCIDRs: a controller must assign them (--allocate-node-cidrs)';

const OUTSIDE = node(['ExternalIP 192.0.2.1'], ['10.244.0.0/24']);
const NOT_OPEN = 'the pod network is not open: ';

/** The states of a Node, a retry apart, and how often opening fails. */
const NETWORKS: { name: string; states: (Node | null)[]; fails?: number; problems: (string | null)[] }[] = [
  { name: 'complete', states: [COMPLETE], problems: [null] },
  { name: 'pod networks arrive', states: [INTERNAL, COMPLETE], problems: [NO_CIDR, null] },
  {
    name: 'all of it arrives, one after the other',
    states: [null, node(), INTERNAL, COMPLETE],
    problems: [
      `${NOT_OPEN}no such Node: n`,
      `${NOT_OPEN}Node n has neither an InternalIP nor an ExternalIP`,
      NO_CIDR,
      null,
    ],
  },
  { name: 'an external address', states: [null, OUTSIDE], problems: [`${NOT_OPEN}no such Node: n`, null] },
  {
    name: 'an address that this machine does not have, then one that it has',
    states: [OUTSIDE, COMPLETE],
    fails: 1,
    problems: [`${NOT_OPEN}no device`, null],
  },
  {
    name: 'an address that this machine gets later',
    states: [COMPLETE, COMPLETE, COMPLETE],
    fails: 2,
    problems: [`${NOT_OPEN}no device`, null],
  },
];

for (const { name, states, fails = 0, problems } of NETWORKS) {
  test(`a late pod network: ${name}`, async () => {
    const [first = null, ...rest] = states;
    const copy = copyOf(first);
    const clock = manualClock();
    const said: (string | null)[] = [];
    const { lines, logger } = heard();
    let failures = fails;
    const opened = openLateNetwork({
      nodes: copy.nodes,
      name: NAME,
      signal: new AbortController().signal,
      clock,
      logger,
      lacks: (one) => podNetworkProblem(one, NAME),
      open(one) {
        if (failures-- > 0) throw new Error('no device');
        return addressesOf(one);
      },
      onProblem: (problem) => void said.push(problem),
    });
    for (const state of rest) {
      await settle();
      // The same Node again, as its heartbeats send it: no second line.
      copy.set(copy.nodes.get(NAME) ?? null);
      copy.set(state);
      await settle();
      clock.advance(5000);
    }
    assert.deepEqual(await opened, addressesOf(states.at(-1) ?? {}));
    assert.deepEqual(said, problems);
    assert.deepEqual(
      lines,
      problems.map((one) => (one === null ? 'info: the pod network is open now' : `warn: ${one}`)),
    );
  });
}
