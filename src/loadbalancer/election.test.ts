import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { WantedAddress } from './candidates.ts';
import { byPreference, type ElectionView, elect } from './election.ts';

const NODES = ['n1', 'n2', 'n3'];
const everywhere: WantedAddress = { services: ['default/web'], nodes: null };
const only = (...nodes: string[]): WantedAddress => ({ services: ['default/web'], nodes: new Set(nodes) });
const addresses = (count: number) => Array.from({ length: count }, (_, i) => `192.0.2.${i + 1}`);

interface Scene {
  readonly lasting?: readonly string[];
  readonly eligible?: readonly string[];
  readonly wanted: Readonly<Record<string, WantedAddress>>;
  /** Address → node, followed by "†" if its session is over; empty: none. */
  readonly owners?: Readonly<Record<string, string>>;
}

function viewOf(
  node: string,
  { lasting = NODES, eligible = lasting, wanted, owners = {} }: Scene,
): ElectionView {
  return {
    node,
    session: lasting.includes(node) ? `${node}/s` : null,
    sessions: new Map(lasting.map((name) => [name, `${name}/s`])),
    eligible: new Set(eligible),
    wanted: new Map(Object.entries(wanted)),
    owners: new Map(
      Object.entries(owners).map(([address, owner]) => [
        address,
        owner === '' ? '' : owner.endsWith('†') ? `${owner.slice(0, -1)}/dead` : `${owner}/s`,
      ]),
    ),
    isOver: (session) => session.endsWith('/dead'),
  };
}

/** Returns the decisions of every node about an address: "n1 claims first", "n2 keeps" … */
function decisions(scene: Scene, address: string): string[] {
  return NODES.flatMap((node) => {
    const { keep, release, claim, remove } = elect(viewOf(node, scene));
    const turn = claim.find((one) => one.address === address);
    return [
      ...(keep.includes(address) ? [`${node} keeps`] : []),
      ...(release.includes(address) ? [`${node} releases`] : []),
      ...(remove.includes(address) ? [`${node} removes`] : []),
      ...(turn ? [`${node} claims as ${turn.rank}`] : []),
    ];
  });
}

const A = '192.0.2.1';
const [first = '', second = '', third = ''] = byPreference(NODES, A);

const rows: { name: string; scene: Scene; is: string[] }[] = [
  {
    name: 'a free address may be claimed by all nodes in the order of their rank',
    scene: { wanted: { [A]: everywhere } },
    is: [`${first} claims as 0`, `${second} claims as 1`, `${third} claims as 2`],
  },
  {
    name: 'a live node keeps its addresses',
    scene: { wanted: { [A]: everywhere }, owners: { [A]: third } },
    is: [`${third} keeps`],
  },
  {
    name: 'addresses of a dead session are free',
    scene: { wanted: { [A]: everywhere }, lasting: ['n2'], owners: { [A]: 'n1†' } },
    is: ['n2 claims as 0'],
  },
  {
    name: 'the new session of a crashed node does not own the addresses of the old one',
    scene: { wanted: { [A]: only('n1') }, owners: { [A]: 'n1†' } },
    is: ['n1 claims as 0'],
  },
  {
    name: 'only nodes with an endpoint claim an address of a Service with local traffic',
    scene: { wanted: { [A]: only('n2') } },
    is: ['n2 claims as 0'],
  },
  {
    name: 'an owner that lost its endpoint releases the address',
    scene: { wanted: { [A]: only('n2') }, owners: { [A]: 'n1' } },
    is: ['n1 releases'],
  },
  {
    name: 'an owner that may no longer announce releases the address before another takes it',
    scene: { wanted: { [A]: everywhere }, eligible: ['n2', 'n3'], owners: { [A]: 'n1' } },
    is: ['n1 releases'],
  },
  {
    name: 'an address without a Service is released',
    scene: { wanted: {}, owners: { [A]: 'n1' } },
    is: ['n1 releases'],
  },
  {
    name: 'its Lease is removed by one node',
    scene: { wanted: {}, owners: { [A]: '' } },
    is: [`${first} removes`],
  },
  {
    name: 'no node claims if none may announce',
    scene: { wanted: { [A]: everywhere }, eligible: [] },
    is: [],
  },
  {
    name: 'a node without a session claims no address',
    scene: { wanted: { [A]: only('n1', 'n2') }, lasting: ['n2', 'n3'] },
    is: ['n2 claims as 0'],
  },
];
for (const { name, scene, is } of rows) {
  test(name, () => assert.deepEqual(decisions(scene, A).sort(), [...is].sort()));
}

describe('spread', () => {
  const firsts = (scene: Scene) => {
    const count = new Map(NODES.map((node) => [node, 0]));
    for (const node of NODES) {
      const turns = elect(viewOf(node, scene)).claim.filter(({ rank }) => rank === 0);
      count.set(node, turns.length);
    }
    return [...count.values()].sort();
  };
  test('many free addresses are distributed evenly, each to exactly one node', () => {
    const wanted = Object.fromEntries(addresses(30).map((address) => [address, everywhere]));
    assert.deepEqual(firsts({ wanted }), [10, 10, 10]);
  });
  test('addresses that a node already owns count', () => {
    const wanted = Object.fromEntries(addresses(9).map((address) => [address, everywhere]));
    const owners = Object.fromEntries(addresses(3).map((address) => [address, 'n1']));
    assert.deepEqual(firsts({ wanted, owners }), [0, 3, 3]);
  });
  test('single addresses do not all go to the same node', () => {
    const chosen = new Set(addresses(50).map((address) => byPreference(NODES, address)[0]));
    assert.deepEqual([...chosen].sort(), NODES);
  });
});
