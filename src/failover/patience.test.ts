import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../lib/clock.ts';
import { createServiceTable } from '../service/service-table.ts';
import { webService, webSlice } from '../service/testing/objects.ts';
import { testNode } from '../service/testing/test-node.ts';
import type { PendingConnection } from './outcome.ts';
import { createPatience, keyOf, type Patience } from './patience.ts';

const VIP = '10.96.0.1';
const MINUTE = 60_000;
const connection = (destination: string, ip: string): PendingConnection => ({
  protocol: 'TCP',
  destination: { ip: destination, port: 80 },
  endpoint: { ip, port: 8080 },
  client: '10.1.0.9',
});
const TO_ONE = connection(VIP, '10.1.0.1');

interface Row {
  readonly name: string;
  readonly endpoints: readonly string[];
  readonly isKnown?: boolean;
  readonly hasFailover?: boolean;
  readonly hasShortTimers?: boolean;
  readonly before?: (patience: Patience) => void;
  readonly laterMs?: number;
  readonly of: number | null;
  readonly isMovable?: boolean;
}

const answers = (count: number, isFast: boolean) => (patience: Patience) => {
  for (let i = 0; i < count; i++) patience.answered(TO_ONE, isFast);
};
const BOTH = ['10.1.0.1', '10.1.0.2'];

const ROWS: readonly Row[] = [
  { name: 'a connection to one of two endpoints', endpoints: BOTH, of: 300 },
  {
    name: 'to the only endpoint: the next SYN reaches it again',
    endpoints: ['10.1.0.1'],
    of: 300,
    isMovable: false,
  },
  { name: 'to an endpoint that was removed, and none is left: it is refused', endpoints: [], of: 300 },
  { name: 'no Services are known yet', endpoints: BOTH, isKnown: false, of: null },
  { name: 'a Service without failover', endpoints: BOTH, hasFailover: false, of: null },
  {
    name: 'an endpoint that answers fast, with short timers',
    endpoints: BOTH,
    hasShortTimers: true,
    before: answers(2, true),
    of: 70,
  },
  { name: 'the same without short timers', endpoints: BOTH, before: answers(2, true), of: 300 },
  {
    name: 'the same with one endpoint',
    endpoints: ['10.1.0.1'],
    hasShortTimers: true,
    before: answers(2, true),
    of: 300,
    isMovable: false,
  },
  {
    name: 'an endpoint whose last answers were late',
    endpoints: BOTH,
    hasShortTimers: true,
    before: answers(2, false),
    of: 300,
  },
  {
    name: 'an endpoint that answers a check later than early connections wait',
    endpoints: BOTH,
    hasShortTimers: true,
    before(patience) {
      answers(8, true)(patience);
      patience.notFast(keyOf(TO_ONE));
    },
    of: 300,
  },
  {
    name: 'an endpoint that is slow',
    endpoints: BOTH,
    before: (patience) => patience.slow(keyOf(TO_ONE)),
    of: null,
  },
  {
    name: 'after ten minutes it is tried as others are',
    endpoints: BOTH,
    before: (patience) => patience.slow(keyOf(TO_ONE)),
    laterMs: 10 * MINUTE,
    of: 300,
  },
];

for (const row of ROWS) {
  test(row.name, () => {
    let now = 0;
    const clock: Clock = { now: () => now, after: () => () => {} };
    const table = createServiceTable(testNode());
    const annotations = row.hasFailover === false ? { 'fairlead.dev/failover': 'disabled' } : {};
    table.setService(webService({}, { annotations }));
    table.setSlice(webSlice(row.endpoints));
    const { map } = table.commit();
    const patience = createPatience({
      clock,
      map: () => (row.isKnown === false ? null : map),
      shortTimers: () => (row.hasShortTimers ? { covers: (address) => address === VIP } : null),
    });
    row.before?.(patience);
    now += row.laterMs ?? 0;
    assert.equal(patience.of(TO_ONE), row.of);
    assert.equal(patience.isMovable(TO_ONE), row.isMovable ?? true);
    assert.equal(patience.of(connection('10.96.0.99', '10.1.0.1')), null, 'no Service has the address');
    assert.equal(patience.mayBeEarly(), row.hasShortTimers ?? false);
    assert.equal(patience.knowsServices(), row.isKnown ?? true);
  });
}
