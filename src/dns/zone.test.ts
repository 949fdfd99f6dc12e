import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RCODE, TYPE } from './message.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import { recordText } from './testing/client.ts';
import { service, slice } from './testing/cluster.ts';
import { createZone, type Zone } from './zone.ts';

const NAMES = ['a', 'b', 'c', 'd'];
const OPTIONS = { reverseCidrs: ['10.0.0.0/8', 'fd00::/16'], random: () => 0, now: () => 0 };

/** Returns every answer that the objects of this test can produce. */
function everything(zone: Zone): string[] {
  const questions: [string, number][] = [];
  for (const name of NAMES) {
    const full = `${name}.shop.svc.cluster.local`;
    for (const type of [TYPE.A, TYPE.AAAA, TYPE.SRV, TYPE.CNAME]) questions.push([full, type]);
    questions.push([`_sql._tcp.${full}`, TYPE.SRV]);
    for (let i = 0; i < 4; i++) questions.push([`h${i}.${full}`, TYPE.A], [`10-9-0-${i}.${full}`, TYPE.A]);
  }
  for (let i = 0; i < 4; i++) {
    questions.push([`${i}.0.9.10.in-addr.arpa`, TYPE.PTR], [`${i}.0.8.10.in-addr.arpa`, TYPE.PTR]);
  }
  return questions.map(([name, type]) => {
    const answer = zone.lookup(name, type);
    return `${name} ${type}: ${answer?.rcode} ${answer?.answers.map(recordText).sort().join()} → ${answer?.alias}`;
  });
}

test('after any sequence of edits the zone answers like a new one with the final objects', () => {
  let state = 42;
  const below = (limit: number) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >> 8) % limit;
  };
  const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  const services = new Map<string, ServiceObject>();
  const slices = new Map<string, EndpointSliceObject>();
  const zone = createZone(OPTIONS);
  zone.setSynced(true);
  for (let edit = 0; edit < 3000; edit++) {
    const name = pick(NAMES);
    switch (below(5)) {
      case 0:
        services.delete(name);
        zone.deleteService('shop', name);
        break;
      case 1:
      case 2: {
        const object = service(
          name,
          pick([
            { clusterIP: `10.8.0.${below(4)}`, ports: [{ name: 'sql', port: 5432 }] },
            { clusterIP: 'None' },
            { clusterIP: 'None', publishNotReadyAddresses: true },
            { type: 'ExternalName', externalName: 'example.com' },
          ]),
        );
        services.set(name, object);
        zone.setService(object);
        break;
      }
      case 3: {
        const object = slice(
          name,
          String(below(2)),
          Array.from({ length: below(4) }, () => ({
            addresses: [`10.9.0.${below(4)}`],
            ...(below(2) ? { hostname: `h${below(4)}` } : {}),
            conditions: { ready: below(2) === 0 },
          })),
        );
        slices.set(object.metadata?.name ?? '', object);
        zone.setSlice(object);
        break;
      }
      default: {
        const sliceName = `${name}-${below(2)}`;
        slices.delete(sliceName);
        zone.deleteSlice('shop', sliceName);
      }
    }
    if (edit % 10 !== 0) continue;
    const fresh = createZone(OPTIONS);
    for (const object of slices.values()) fresh.setSlice(object);
    for (const object of services.values()) fresh.setService(object);
    fresh.setSynced(true);
    assert.deepEqual(everything(zone).sort(), everything(fresh).sort(), `after edit ${edit}`);
  }
});

test('a slice that changes its Service no longer belongs to the old one', () => {
  const zone = createZone(OPTIONS);
  zone.setSynced(true);
  zone.setService(service('a', { clusterIP: 'None' }));
  zone.setService(service('b', { clusterIP: 'None' }));
  zone.setSlice(slice('a', 'x', [{ addresses: ['10.9.0.1'] }]));
  zone.setSlice({
    ...slice('b', 'x', [{ addresses: ['10.9.0.1'] }]),
    metadata: { namespace: 'shop', name: 'a-x', labels: { 'kubernetes.io/service-name': 'b' } },
  });
  assert.equal(zone.lookup('a.shop.svc.cluster.local', TYPE.A)?.rcode, 3);
  assert.equal(zone.lookup('b.shop.svc.cluster.local', TYPE.A)?.answers.length, 1);
});

test('objects with invalid fields do not affect others', () => {
  const zone = createZone(OPTIONS);
  zone.setSynced(true);
  zone.setService({});
  zone.setService(service('a', { clusterIP: 'nonsense' }));
  zone.setService(service('b', { type: 'ExternalName', externalName: `${'x'.repeat(64)}.com` }));
  zone.setService(service('c', { clusterIP: 'None' }));
  zone.setSlice({});
  zone.setSlice(
    slice('c', 'x', [{ addresses: [] }, { addresses: ['nonsense'] }, { addresses: ['10.9.0.1'] }]),
  );
  zone.setSlice(slice('c', 'y', [{ addresses: ['www.example.com'] }], 'FQDN'));
  assert.deepEqual(zone.lookup('a.shop.svc.cluster.local', TYPE.A)?.answers, []);
  assert.deepEqual(zone.lookup('b.shop.svc.cluster.local', TYPE.A)?.answers, []);
  assert.equal(zone.lookup('c.shop.svc.cluster.local', TYPE.A)?.answers.length, 1);
});

test('invalid options are refused by name', () => {
  for (const ttl of [-1, 3601, 1.5]) assert.throws(() => createZone({ ttl }), /ttl/);
  assert.throws(() => createZone({ reverseCidrs: ['10.0.0.0'] }), /reverseCidrs.*10\.0\.0\.0/);
});

test('pods behind a Service with a cluster IP have names and reverse names', () => {
  const zone = createZone(OPTIONS);
  zone.setSynced(true);
  const web = service('web', { clusterIP: '10.8.0.1', ports: [{ port: 80 }] });
  zone.setService(web);
  zone.setSlice(
    slice('web', '1', [
      { addresses: ['10.9.0.2'] },
      { addresses: ['10.9.0.3'], hostname: 'first' },
      { addresses: ['10.9.0.4'], conditions: { ready: false } },
    ]),
  );
  const ask = (name: string, type: number) => zone.lookup(name, type)?.answers.map(recordText) ?? [];
  const rows: readonly [name: string, type: number, answers: number, text: RegExp][] = [
    ['10-9-0-2.web.shop.svc.cluster.local', TYPE.A, 1, /10\.9\.0\.2/],
    ['first.web.shop.svc.cluster.local', TYPE.A, 1, /10\.9\.0\.3/],
    ['10-9-0-4.web.shop.svc.cluster.local', TYPE.A, 0, /^$/],
    ['2.0.9.10.in-addr.arpa', TYPE.PTR, 1, /10-9-0-2\.web\.shop\.svc\.cluster\.local/],
    ['1.0.8.10.in-addr.arpa', TYPE.PTR, 1, /web\.shop\.svc\.cluster\.local/],
    ['web.shop.svc.cluster.local', TYPE.A, 1, /10\.8\.0\.1/],
  ];
  for (const [name, type, count, text] of rows) {
    const answers = ask(name, type);
    assert.equal(answers.length, count, `${name}: ${answers}`);
    assert.match(answers.join(), text);
  }
  zone.deleteService('shop', 'web');
  assert.deepEqual(ask('2.0.9.10.in-addr.arpa', TYPE.PTR), []);
});

test('with insecure pod records, names in namespaces without Services exist', () => {
  const zone = createZone({ ...OPTIONS, podMode: 'insecure' });
  zone.setSynced(true);
  assert.equal(zone.lookup('10-9-0-2.empty.pod.cluster.local', TYPE.A)?.answers.length, 1);
});

test('namespaces exist without Services while they do; without their list, only those with Services', () => {
  const zone = createZone({ ...OPTIONS, podMode: 'insecure' });
  zone.setSynced(true);
  const rcodes = () =>
    ['empty.svc.cluster.local', 'gone.svc.cluster.local', '10-9-0-2.gone.pod.cluster.local'].map(
      (name) => zone.lookup(name, TYPE.A)?.rcode,
    );
  const { NOERROR, NXDOMAIN } = RCODE;
  assert.deepEqual(rcodes(), [NXDOMAIN, NXDOMAIN, NOERROR]);
  zone.setNamespace('empty');
  assert.deepEqual(rcodes(), [NOERROR, NXDOMAIN, NOERROR]);
  zone.setNamespacesKnown(true);
  assert.deepEqual(rcodes(), [NOERROR, NXDOMAIN, NXDOMAIN]);
  zone.setNamespace('gone');
  assert.deepEqual(rcodes(), [NOERROR, NOERROR, NOERROR]);
  zone.deleteNamespace('gone');
  assert.deepEqual(rcodes(), [NOERROR, NXDOMAIN, NXDOMAIN]);
});
