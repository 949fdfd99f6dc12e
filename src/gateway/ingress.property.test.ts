import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRandom, type Random } from '../service/testing/random.ts';
import { attach } from './attach.ts';
import { decide } from './decide.ts';
import type { GatewayObjects } from './objects.ts';
import { indexRoutes } from './route-index.ts';
import { ingressClass, ingressPath, object, objects, request, service } from './testing/objects.ts';
import { referenceIngress } from './testing/reference-ingress.ts';

const HOSTS = ['a.example', 'b.a.example', '*.example', '*.a.example', '*.b.a.example', 'other.test'];
const ASKED = [
  'a.example',
  'b.a.example',
  'c.b.a.example',
  'x.example',
  'other.test',
  'none.test',
  'example',
];
const PATHS = ['/', '/x', '/x/', '/x/y', '/xy', '/y'];
const TARGETS = [...PATHS, '/x/y/z', '//x', '/x//y', '/x?q=/y'];
const SERVICES = ['a', 'b', 'c', 'missing'];
const NAMESPACES = ['default', 'other'];
const REQUESTS_PER_MAP = 10;

function randomIngresses(random: Random): GatewayObjects {
  const rule = () => {
    const paths = Array.from({ length: 1 + random.integer(2) }, () =>
      ingressPath(
        random.pick(PATHS),
        random.pick(SERVICES),
        random.pick(['Prefix', 'Prefix', 'Exact', 'ImplementationSpecific']),
      ),
    );
    return { ...(random.chance(0.8) ? { host: random.pick(HOSTS) } : {}), http: { paths } };
  };
  const ingresses = Array.from({ length: 1 + random.integer(4) }, (_, index) =>
    object(
      `i${index}`,
      {
        ingressClassName: 'fairlead',
        rules: Array.from({ length: random.integer(3) }, rule),
        ...(random.chance(0.3)
          ? { defaultBackend: { service: { name: random.pick(SERVICES), port: { name: 'http' } } } }
          : {}),
      },
      { namespace: random.pick(NAMESPACES), age: random.integer(3) },
    ),
  );
  const services = NAMESPACES.flatMap((namespace) =>
    ['a', 'b', 'c'].map((name) => service(name, { namespace })),
  );
  return objects({ ingressClasses: [ingressClass()], services, ingresses });
}

test('Ingresses are merged as a scan of all their paths by the words of the API', () => {
  const cases = Number(process.env['FAIRLEAD_PROPERTY_CASES'] ?? 20_000);
  const seen = new Map<string, number>();
  for (let i = 0; i < cases / REQUESTS_PER_MAP; i++) {
    const random = createRandom(i);
    const ingresses = randomIngresses(random);
    const index = indexRoutes(attach(ingresses).routeMap);
    for (let j = 0; j < REQUESTS_PER_MAP; j++) {
      const asked = request(`http://${random.pick(ASKED)}${random.pick(TARGETS)}`);
      const decision = decide(index, asked);
      const got =
        decision.kind === 'forward'
          ? (decision.backends[0]?.backend?.replace(/:80$/, '') ?? '')
          : decision.kind === 'error'
            ? String(decision.status)
            : decision.kind;
      const expected = referenceIngress(ingresses, asked);
      if (got !== expected)
        assert.fail(
          `case ${i}: ${got} instead of ${expected}\n${JSON.stringify({ asked, ingresses: ingresses.ingresses }, null, 1)}`,
        );
      seen.set(expected, (seen.get(expected) ?? 0) + 1);
    }
  }
  for (const kind of ['404', '503', 'default/a', 'other/b'])
    assert.ok((seen.get(kind) ?? 0) > cases / 100, `${kind}: ${seen.get(kind)}`);
});
