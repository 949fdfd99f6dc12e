import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explain } from '../observe/explain.ts';
import type { ListeningSocket } from '../observe/facts.ts';
import { knownFactsOf, SERVICES, view } from '../observe/testing/explain-scene.ts';
import { serviceFaults } from './service-faults.ts';

const named = (name: string) => SERVICES.filter(({ metadata }) => metadata?.name === name);
const listening = (port: number): ListeningSocket[] => [
  { address: '::', port, v6Only: false, isFull: false },
];

const ROWS: readonly [what: string, service: string, sockets: ListeningSocket[], says: RegExp | null][] = [
  ['a Service whose pods answer', 'sticky', listening(8080), null],
  [
    'a target port where no process listens',
    'sticky',
    listening(9090),
    /^Service shop\/sticky, port 80\/TCP: nothing listens on port 8080\/TCP in pod shop\/web-1; it listens on 9090 \(and the same of 1 more\); set spec\.ports\[0\]\.targetPort to 9090$/,
  ],
  [
    'a name of a port that no pod has',
    'named',
    listening(8080),
    /^Service shop\/named, port 80\/TCP: .*targetPort http/,
  ],
  [
    'labels that almost match',
    'typo',
    listening(8080),
    /^Service shop\/typo, port 80\/TCP: selector app=webb,tier=x matches 0 pods.*closest: app=web/,
  ],
  ['a local policy that this node does not meet', 'inside', listening(8080), null],
];

for (const [what, name, sockets, says] of ROWS)
  test(`status explains ${what}`, async () => {
    const scene = view({ facts: knownFactsOf({}, { sockets: () => sockets }) });
    const problems = await serviceFaults(named(name), 'node-1', async (request) => explain(scene, request));
    const texts = problems.map(({ message }) => message);
    if (says === null) assert.deepEqual(texts, []);
    else assert.match(texts.join('\n'), says);
  });

test('status says which Service could not be explained, and why', async () => {
  const problems = await serviceFaults(named('sticky'), 'node-1', () =>
    Promise.reject(new Error('no answer')),
  );
  assert.deepEqual(
    problems.map(({ code, message }) => [code, message]),
    [['agent-silent', 'Service shop/sticky: port 80/TCP was not checked: no answer']],
  );
});
