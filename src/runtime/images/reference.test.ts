import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { defaultPullPolicy, formatReference, parseReference } from './reference.ts';

describe('names', () => {
  const digest = `sha256:${'a'.repeat(64)}`;
  for (const [name, whole] of [
    ['nginx', 'docker.io/library/nginx:latest'],
    ['nginx:1.27', 'docker.io/library/nginx:1.27'],
    ['me/app', 'docker.io/me/app:latest'],
    ['docker.io/nginx', 'docker.io/library/nginx:latest'],
    ['registry.k8s.io/pause:3.10', 'registry.k8s.io/pause:3.10'],
    ['localhost/app', 'localhost/app:latest'],
    ['127.0.0.1:5000/a/b/c:d', '127.0.0.1:5000/a/b/c:d'],
    [`app@${digest}`, `docker.io/library/app@${digest}`],
    [`app:1@${digest}`, `docker.io/library/app:1@${digest}`],
  ] as const) {
    test(`${name} is ${whole}`, () => assert.equal(formatReference(parseReference(name)), whole));
  }
  for (const [name, why] of [
    ['', /repository/],
    ['Nginx', /repository/],
    ['a b', /repository/],
    ['../x', /registry/],
    ['app:', /tag/],
    ['app:-x', /tag/],
    ['app@sha256:12', /digest/],
    ['app@md5:x@y', /"@"/],
  ] as const) {
    test(`${JSON.stringify(name)} is refused`, () =>
      assert.throws(() => parseReference(name), { code: 'InvalidImageName', message: why }));
  }
  test('only the tag "latest" is always pulled', () => {
    const policies = ['a', 'a:latest', 'a:1', `a@${digest}`].map((name) =>
      defaultPullPolicy(parseReference(name)),
    );
    assert.deepEqual(policies, ['Always', 'Always', 'IfNotPresent', 'IfNotPresent']);
  });
});
