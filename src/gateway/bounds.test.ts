import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attach } from './attach.ts';
import {
  allRows,
  gateway,
  ingress,
  ingressClass,
  ingressPath,
  listener,
  object,
  objects,
  prefix,
  route,
  rule,
  service,
} from './testing/objects.ts';
import { world } from './testing/world.ts';

/** Objects whose number or size would cost more than they are worth. */

const many = <T>(count: number, make: (index: number) => T): readonly T[] =>
  Array.from({ length: count }, (_, i) => make(i));

test('thousands of hosts beside thousands of rules for every host stay a table of bounded size, with a finding', () => {
  const { routeMap, findings, ask } = world({
    httpRoutes: [
      ...many(2000, (i) =>
        route(`host-${i}`, [rule('a', prefix('/own'))], {}, { hostnames: [`h${i}.example`] }),
      ),
      ...many(2000, (i) => route(`all-${i}`, [rule('b', prefix(`/p${i}`))])),
    ],
  });
  assert.ok(allRows(routeMap).length < 510_000, `${allRows(routeMap).length} rows`);
  assert.deepEqual(
    findings.map(({ reason, object: { kind, name } }) => `${reason} ${kind} ${name}`),
    ['TooManyRows Gateway gw'],
  );
  assert.equal(ask('http://h1.example/own'), 'a');
  assert.equal(ask('http://h1.example/p1000'), 'b');
  assert.equal(ask('http://elsewhere.example/p1999'), 'b');
});

test('so do thousands of hosts with certificates', () => {
  const rules = [{ paths: many(1000, (i) => ingressPath(`/p${i}`, 'a')) }];
  const { routeMap } = attach(
    objects({
      ingressClasses: [ingressClass()],
      services: [service('a')],
      certificates: new Map([['default/tls', null]]),
      ingresses: [
        ingress('all', rules),
        ...many(1000, (i) =>
          ingress(`i${i}`, [], {}, { tls: [{ hosts: [`h${i}.example`], secretName: 'tls' }] }),
        ),
      ],
    }),
  );
  assert.ok(allRows(routeMap).length < 510_000, `${allRows(routeMap).length} rows`);
  const port = routeMap.gateways[0]?.ports[1];
  assert.equal(port?.kind === 'tls' && port.listeners.length, 1000);
});

test('listeners beyond a number are refused, those of the youngest sets first', () => {
  const listeners = (set: number) =>
    many(60, (i) => listener(`l${i}`, { hostname: `h${i}.s${set}.example` }));
  const cluster = world({
    gateways: [
      gateway(
        'gw',
        [listener('http', { hostname: 'gw.example' })],
        {},
        { allowedListeners: { namespaces: { from: 'All' } } },
      ),
    ],
    listenerSets: many(20, (i) =>
      object(`set-${i}`, { parentRef: { name: 'gw' }, listeners: listeners(i) }, { age: i }),
    ),
  });
  assert.equal(cluster.conditions('Gateway', 'gw')[0], 'Accepted Accepted');
  assert.equal(cluster.conditions('ListenerSet', 'set-0')[0], 'Accepted Accepted');
  assert.equal(cluster.conditions('ListenerSet', 'set-19')[0], '!Accepted ListenersNotValid');
  assert.equal(cluster.listener('ListenerSet', 'set-19', 'l0')[1], '!Accepted TooManyListeners');
});

test('one Ingress has a bounded number of findings, and messages a bounded length', () => {
  const paths = many(500, (i) => ingressPath(`/${'x'.repeat(300)}/../${i}`, 'none'));
  const { findings } = attach(
    objects({ ingressClasses: [ingressClass()], ingresses: [ingress('a', [{ paths }])] }),
  );
  assert.equal(findings.length, 16);
  assert.ok(findings.every(({ message }) => message.length < 300));
});
