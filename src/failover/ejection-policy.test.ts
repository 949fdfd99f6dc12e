import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createEjectionPolicy, type Decision, type EjectionPolicy } from './ejection-policy.ts';

const POOL = ['a', 'b', 'c', 'd'];

/** "a" gets the outcome of a client, or of a check ("node"), at a time in milliseconds. */
type Step =
  | readonly [at: number, client: string, kind: 'reset' | 'timeout' | 'success', endpoint?: string]
  | readonly [at: number, 'due' | 'forget' | 'late', endpoint?: string];

interface Row {
  readonly name: string;
  readonly pools?: readonly (readonly string[])[];
  readonly steps: readonly Step[];
  /** The decisions, as "TIME WORD ENDPOINT …". */
  readonly decided: readonly string[];
  /** Ejected endpoints at the end; default: none. */
  readonly out?: readonly string[];
}

const ROWS: readonly Row[] = [
  {
    name: 'a single refused client only causes a check',
    steps: [[0, 'x', 'reset']],
    decided: ['0 check a'],
  },
  {
    name: 'an endpoint that refuses a client and the check is ejected at once',
    steps: [
      [0, 'x', 'reset'],
      [2, 'node', 'reset'],
    ],
    decided: ['0 check a', '2 ejected a reset 5000'],
    out: ['a'],
  },
  {
    name: 'an endpoint that refuses a client but answers the check stays: a network policy may refuse the client',
    steps: [
      [0, 'x', 'reset'],
      [2, 'node', 'success'],
      [5, 'x', 'reset'],
      [500, 'x', 'reset'],
      [1001, 'x', 'reset'],
      [1002, 'node', 'success'],
    ],
    decided: ['0 check a', '1001 check a'],
  },
  {
    name: 'timeouts of two clients eject before the check has its answer',
    steps: [
      [0, 'x', 'timeout'],
      [1, 'y', 'timeout'],
      [2, 'x', 'timeout'],
    ],
    decided: ['0 check a', '2 ejected a timeout 5000'],
    out: ['a'],
  },
  {
    name: 'many timeouts of one client do not eject without the check',
    steps: [0, 1, 2, 3, 4, 5, 6, 7, 8].map((at) => [at, 'x', 'timeout'] as const),
    decided: ['0 check a'],
  },
  {
    name: 'timeouts of one client and of the check eject',
    steps: [
      [0, 'x', 'timeout'],
      [5, 'x', 'timeout'],
      [300, 'node', 'timeout'],
    ],
    decided: ['0 check a', '300 ejected a timeout 5000'],
    out: ['a'],
  },
  {
    name: 'a single connection causes two checks',
    steps: [
      [0, 'x', 'timeout'],
      [300, 'node', 'timeout'],
      [999, 'due'],
      [1000, 'due'],
      [1300, 'node', 'timeout'],
    ],
    decided: ['0 check a', '1000 check a', '1300 ejected a timeout 5000'],
    out: ['a'],
  },
  {
    name: 'a check that began with a late answer counts when the connection times out',
    steps: [
      [0, 'late'],
      [45, 'x', 'timeout'],
      [46, 'node', 'timeout'],
      [47, 'x', 'timeout'],
    ],
    decided: ['0 check a', '47 ejected a timeout 5000'],
    out: ['a'],
  },
  {
    name: 'late answers cause one check a second, and eject nothing',
    steps: [
      [0, 'late'],
      [1, 'late'],
      [10, 'node', 'success'],
      [500, 'late'],
      [1000, 'late'],
      [1045, 'node', 'timeout'],
      [1046, 'x', 'success'],
    ],
    decided: ['0 check a', '1000 check a'],
  },
  {
    name: 'a check that began with a late answer and succeeded does not delay that of a refusal',
    steps: [
      [0, 'late'],
      [10, 'node', 'success'],
      [20, 'x', 'reset'],
      [21, 'node', 'reset'],
    ],
    decided: ['0 check a', '20 check a', '21 ejected a reset 5000'],
    out: ['a'],
  },
  {
    name: 'a check that began with a late answer and failed is not repeated at once',
    steps: [
      [0, 'late'],
      [45, 'node', 'timeout'],
      [50, 'x', 'timeout'],
      [1044, 'due'],
      [1045, 'due'],
    ],
    decided: ['0 check a', '1045 check a'],
  },
  {
    name: 'a late answer of an ejected endpoint changes nothing',
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
      [2000, 'late'],
    ],
    decided: ['0 check a', '1 ejected a reset 5000'],
    out: ['a'],
  },
  {
    name: 'an answer in between clears the failures',
    steps: [
      [0, 'x', 'timeout'],
      [1, 'y', 'timeout'],
      [2, 'z', 'success'],
      [3, 'x', 'timeout'],
      [4, 'y', 'timeout'],
      [5, 'x', 'success'],
      [6, 'x', 'timeout'],
    ],
    decided: ['0 check a'],
  },
  {
    name: 'timeouts outside of the window do not count together',
    steps: [
      [0, 'x', 'timeout'],
      [10, 'node', 'success'],
      [20, 'y', 'timeout'],
      [10_021, 'x', 'timeout'],
      [10_022, 'node', 'success'],
      [20_500, 'y', 'timeout'],
    ],
    decided: ['0 check a', '10021 check a', '20500 check a'],
  },
  {
    name: 'at most half of the endpoints are ejected',
    steps: ['a', 'b', 'c', 'd'].flatMap((endpoint, i): Step[] => [
      [i * 10, 'x', 'reset', endpoint],
      [i * 10 + 1, 'node', 'reset', endpoint],
    ]),
    decided: [
      '0 check a',
      '1 ejected a reset 5000',
      '10 check b',
      '11 ejected b reset 5000',
      '20 check c',
      '30 check d',
    ],
    out: ['a', 'b'],
  },
  {
    name: 'at most one of three endpoints is ejected',
    pools: [['a', 'b', 'c']],
    steps: ['a', 'b'].flatMap((endpoint): Step[] => [
      [0, 'x', 'reset', endpoint],
      [1, 'node', 'reset', endpoint],
    ]),
    decided: ['0 check a', '1 ejected a reset 5000', '0 check b'],
    out: ['a'],
  },
  {
    name: 'the last endpoint is never ejected',
    pools: [['a']],
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
    ],
    decided: ['0 check a'],
  },
  {
    name: 'an endpoint is ejected if one of the pools allows it',
    pools: [['a'], POOL],
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
    ],
    decided: ['0 check a', '1 ejected a reset 5000'],
    out: ['a'],
  },
  {
    name: 'an endpoint that could not be ejected is ejected by its next failure once the limit allows it',
    pools: [['a', 'b']],
    steps: [
      [0, 'x', 'reset', 'b'],
      [1, 'node', 'reset', 'b'],
      [2, 'x', 'timeout'],
      [3, 'y', 'timeout'],
      [4, 'y', 'timeout'],
      [5, 'forget', 'b'],
      [6, 'y', 'timeout'],
    ],
    decided: ['0 check b', '1 ejected b reset 5000', '2 check a', '6 ejected a timeout 5000'],
    out: ['a'],
  },
  {
    name: 'an endpoint returns when it answers the check after its ejection',
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
      [4_000, 'x', 'timeout'],
      [5_000, 'due'],
      [5_001, 'due'],
      [5_002, 'node', 'success'],
    ],
    decided: ['0 check a', '1 ejected a reset 5000', '5001 check a', '5002 returned a answered'],
  },
  {
    name: 'each failed check doubles the ejection',
    steps: [
      [0, 'x', 'reset'],
      [0, 'node', 'reset'],
      [5_000, 'due'],
      [5_300, 'node', 'timeout'],
      [15_299, 'due'],
      [15_300, 'due'],
      [15_300, 'node', 'reset'],
      [35_299, 'due'],
      [35_300, 'due'],
    ],
    decided: ['0 check a', '0 ejected a reset 5000', '5000 check a', '15300 check a', '35300 check a'],
    out: ['a'],
  },
  {
    name: 'an answer to any client ends the ejection',
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
      [700, 'y', 'success'],
    ],
    decided: ['0 check a', '1 ejected a reset 5000', '700 returned a answered'],
  },
  {
    name: 'failing soon after its return doubles the ejection',
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
      [700, 'y', 'success'],
      [2_000, 'x', 'reset'],
      [2_001, 'node', 'reset'],
    ],
    decided: [
      '0 check a',
      '1 ejected a reset 5000',
      '700 returned a answered',
      '2000 check a',
      '2001 ejected a reset 10000',
    ],
    out: ['a'],
  },
  {
    name: 'failing long after its return starts with the first duration',
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
      [700, 'y', 'success'],
      [60_700, 'due'],
      [60_701, 'x', 'reset'],
      [60_702, 'node', 'reset'],
    ],
    decided: [
      '0 check a',
      '1 ejected a reset 5000',
      '700 returned a answered',
      '60701 check a',
      '60702 ejected a reset 5000',
    ],
    out: ['a'],
  },
  {
    name: 'becoming ready again ends the ejection and forgets the record',
    steps: [
      [0, 'x', 'reset'],
      [1, 'node', 'reset'],
      [100, 'forget'],
      [200, 'x', 'reset'],
      [201, 'node', 'reset'],
    ],
    decided: ['0 check a', '1 ejected a reset 5000', '200 check a', '201 ejected a reset 5000'],
    out: ['a'],
  },
  {
    name: 'the result of an abandoned check is ignored',
    steps: [
      [0, 'x', 'reset'],
      [1, 'forget'],
      [2, 'node', 'reset'],
    ],
    decided: ['0 check a'],
  },
];

function run(policy: EjectionPolicy, { steps, pools = [POOL] }: Row): string[] {
  const decided: string[] = [];
  for (const step of steps) {
    const [at, who] = step;
    const endpoint = (step.length > 2 && typeof step[3] === 'string' ? step[3] : null) ?? 'a';
    let decisions: Decision[] = [];
    if (who === 'due') decisions = policy.due(at);
    else if (who === 'forget') policy.forget((step[2] as string | undefined) ?? 'a');
    else if (who === 'late') decisions = policy.late(at, (step[2] as string | undefined) ?? 'a', pools);
    else if (who === 'node') decisions = policy.checked(at, endpoint, step[2] as 'reset');
    else decisions = policy.observe(at, endpoint, { client: who, kind: step[2] as 'reset' }, pools);
    for (const decision of decisions) decided.push(`${at} ${wordsOf(decision)}`);
  }
  return decided;
}

function wordsOf(decision: Decision): string {
  switch (decision.kind) {
    case 'check':
      return `check ${decision.endpoint}`;
    case 'ejected':
      return `ejected ${decision.endpoint} ${decision.cause} ${decision.forMs}`;
    case 'returned':
      return `returned ${decision.endpoint} ${decision.cause}`;
  }
}

describe('ejection of endpoints', () => {
  for (const row of ROWS) {
    test(row.name, () => {
      const policy = createEjectionPolicy();
      assert.deepEqual(run(policy, row), row.decided);
      assert.deepEqual([...policy.ejected], row.out ?? []);
    });
  }

  test('an endpoint that never answers is on trial every five minutes, and ejected by the first failure', () => {
    const policy = createEjectionPolicy();
    policy.observe(0, 'a', { kind: 'reset', client: 'x' }, [POOL]);
    policy.checked(0, 'a', 'reset');
    const times: number[] = [];
    let now = 0;
    for (;;) {
      now = policy.nextDue ?? assert.fail();
      assert.deepEqual(policy.due(now), [{ kind: 'check', endpoint: 'a' }]);
      times.push(now / 1000);
      if (policy.checked(now, 'a', 'timeout').length > 0) break;
    }
    assert.deepEqual(times, [5, 15, 35, 75, 155, 315, 615]);
    assert.equal(policy.ejected.size, 0);
    assert.deepEqual(policy.observe(now + 10, 'a', { kind: 'timeout', client: 'x' }, [POOL]), [
      { kind: 'ejected', endpoint: 'a', cause: 'timeout', forMs: 300_000 },
    ]);
  });

  test('an endpoint that answered late and then the check is forgotten after a second', () => {
    const policy = createEjectionPolicy();
    policy.late(0, 'a', [POOL]);
    policy.checked(10, 'a', 'success');
    policy.due(999);
    assert.equal(policy.active, true);
    policy.due(policy.nextDue ?? assert.fail());
    assert.equal(policy.active, false);
  });

  test('a healthy endpoint is forgotten some time after its failures', () => {
    const policy = createEjectionPolicy();
    policy.observe(0, 'a', { kind: 'timeout', client: 'x' }, [POOL]);
    policy.checked(10, 'a', 'success');
    assert.equal(policy.active, true);
    policy.due(policy.nextDue ?? assert.fail());
    assert.equal(policy.active, false);
    assert.equal(policy.nextDue, null);
  });
});
