import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type PassedListener,
  passedEnvironment,
  passedListener,
  passedListeners,
  withoutPassedListeners,
} from './passed-listeners.ts';

const LISTENERS: readonly PassedListener[] = [
  { wanted: 'api', port: 6443, descriptors: [20] },
  { wanted: 8080, port: 8080, descriptors: [21, 30] },
];

test('a process finds its inherited sockets by the port that it wants', () => {
  const environment = passedEnvironment(LISTENERS);
  assert.deepEqual(passedListeners(environment), LISTENERS);
  assert.equal(passedListener('api', environment)?.port, 6443);
  assert.deepEqual(passedListener(8080, environment)?.descriptors, [21, 30]);
  assert.equal(passedListener(9090, environment), null);
});

test('a child gets the sockets as its descriptors from 3 on', () => {
  const environment = passedEnvironment(LISTENERS, 3);
  assert.deepEqual(
    passedListeners(environment).map(({ descriptors }) => descriptors),
    [[3], [4, 5]],
  );
});

test('a child without sockets does not see those of its parent', () => {
  const environment = withoutPassedListeners({ ...passedEnvironment(LISTENERS), PATH: '/bin' });
  assert.deepEqual(environment, { PATH: '/bin' });
  assert.deepEqual(passedListeners(environment), []);
});
