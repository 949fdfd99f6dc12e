import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ingressWarnings } from './ingress-warnings.ts';

const warningsOf = (...names: readonly string[]) =>
  ingressWarnings('', Object.fromEntries(names.map((name) => [`nginx.ingress.kubernetes.io/${name}`, 'x'])));

test('annotations that are applied, and those of others, bring no warning', () => {
  assert.deepEqual(warningsOf('rewrite-target', 'canary-weight', 'enable-cors'), []);
  assert.deepEqual(ingressWarnings('fairlead', { 'cert-manager.io/issuer': 'x' }), []);
});

test('each other annotation is named, with what replaces it', () => {
  for (const [name, replacement] of [
    ['configuration-snippet', /filters of an HTTPRoute/],
    ['server-snippet', /filters of an HTTPRoute/],
    ['auth-tls-secret', /frontend/],
    ['auth-url', /nothing in Gateway API/],
    ['affinity', /sessionPersistence/],
    ['mirror-target', /RequestMirror/],
    ['permanent-redirect', /RequestRedirect/],
    ['upstream-vhost', /urlRewrite.hostname/],
    ['proxy-ssl-secret', /BackendTLSPolicy/],
    ['ssl-passthrough', /TLSRoute/],
    ['canary-by-cookie', /matches/],
    ['unknown-thing', /nothing in Gateway API/],
  ] as const) {
    const [warning = '', ...others] = warningsOf(name);
    assert.deepEqual(others, []);
    assert.ok(
      warning.startsWith(`metadata.annotations[nginx.ingress.kubernetes.io/${name}]: not applied`),
      warning,
    );
    assert.match(warning, replacement);
  }
});

test('the number and length of warnings are bounded', () => {
  const warnings = warningsOf(...Array.from({ length: 500 }, (_, i) => `x${i}${'y'.repeat(500)}`));
  assert.equal(warnings.length, 21);
  assert.ok(warnings.every((warning) => warning.length < 300));
});

test('an Ingress of another class brings no warning', () => {
  const annotations = { 'nginx.ingress.kubernetes.io/auth-url': 'x' };
  assert.equal(ingressWarnings('fairlead', annotations).length, 1);
  assert.deepEqual(ingressWarnings('nginx', annotations), []);
});
