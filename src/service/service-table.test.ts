import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEmptyChange, snapshot } from './diff.ts';
import { createServiceTable } from './service-table.ts';
import { webService, webSlice } from './testing/objects.ts';
import { network, testNode } from './testing/test-node.ts';

const WEB = 'ipv4/10.96.0.1/TCP/80';

function webTable() {
  const table = createServiceTable(testNode());
  table.setService(webService());
  table.setSlice(webSlice(['10.244.1.2 @node-1', '10.244.2.2 @node-2']));
  const first = table.commit();
  return { table, first };
}

test('the first commit contains everything', () => {
  const { table, first } = webTable();
  assert.deepEqual(first.change.node, { before: null, after: first.map.node });
  assert.deepEqual(
    first.change.frontends.map(({ key, before, after }) => [key, before, after?.port]),
    [[WEB, null, 80]],
  );
  assert.deepEqual(first.change.clusterIPs.added, ['10.96.0.1']);
  assert.deepEqual(first.change.hairpinAddresses.added, ['10.244.1.2']);
  assert.equal(table.dirty, false);
  assert.ok(isEmptyChange(table.commit().change));
});

test('setting the same objects again changes nothing', () => {
  const { table, first } = webTable();
  const before = snapshot(first.map);
  table.setService(webService());
  table.setSlice(webSlice(['10.244.1.2 @node-1', '10.244.2.2 @node-2']));
  table.setNode(testNode());
  const { map, change } = table.commit();
  assert.ok(isEmptyChange(change));
  assert.equal(map.frontends.get(WEB), before.frontends.get(WEB));
});

test('adding an endpoint leaves the others unchanged', () => {
  const { table } = webTable();
  table.setSlice(webSlice(['10.244.1.2 @node-1', '10.244.2.2 @node-2', '10.244.2.3 @node-2']));
  const { change } = table.commit();
  assert.equal(change.frontends.length, 1);
  const [only] = change.frontends;
  const endpoints = [only?.before, only?.after].map((frontend) => {
    const route = frontend?.routes.pod;
    return route?.action === 'forward' ? route.pool.endpoints : [];
  });
  assert.equal(endpoints[1]?.length, 3);
  assert.equal(endpoints[0]?.[0], endpoints[1]?.[0]);
  assert.ok(isEmptyChange({ ...change, frontends: [] }));
});

test('deleting a Service removes its frontends, addresses and findings; its slices are used if it returns', () => {
  const { table } = webTable();
  table.deleteService('default', 'web');
  const gone = table.commit();
  assert.equal(gone.map.frontends.size, 0);
  assert.equal(gone.map.hairpinAddresses.size, 0);
  assert.deepEqual(gone.change.clusterIPs.removed, ['10.96.0.1']);
  table.setService(webService());
  const back = table.commit();
  assert.equal(back.map.frontends.get(WEB)?.routes.pod.action, 'forward');
});

test('a slice relabelled for another Service no longer serves the first', () => {
  const { table } = webTable();
  table.setService(webService({ clusterIPs: ['10.96.0.2'] }, { name: 'shop' }));
  const slice = webSlice(['10.244.1.2 @node-1']);
  table.setSlice({
    ...slice,
    metadata: { ...slice.metadata, labels: { 'kubernetes.io/service-name': 'shop' } },
  });
  const { map } = table.commit();
  assert.equal(map.frontends.get(WEB)?.routes.pod.action, 'reject');
  assert.equal(map.frontends.get('ipv4/10.96.0.2/TCP/80')?.routes.pod.action, 'forward');
});

test('an endpoint that moves between slices, added before it is removed, is never missing', () => {
  const { table } = webTable();
  table.setSlice(webSlice(['10.244.2.2 @node-2'], { name: 'web-2' }));
  assert.ok(isEmptyChange(table.commit().change));
  table.setSlice(webSlice(['10.244.1.2 @node-1']));
  assert.ok(isEmptyChange(table.commit().change));
});

test('a node setting that no frontend depends on changes only the node', () => {
  const { table } = webTable();
  table.setNode(testNode({ serviceCidrs: [network('10.0.0.0/8')], ipvsScheduler: 'sh' }));
  const { change } = table.commit();
  assert.equal(change.node?.after.ipvsScheduler, 'sh');
  assert.ok(isEmptyChange({ ...change, node: null }));
});

test('a changed zone affects only Services with hints', () => {
  const { table } = webTable();
  table.setService(webService({ clusterIPs: ['10.96.0.2'] }, { name: 'zonal' }));
  const slice = webSlice(['10.244.1.3 zone=zone-a', '10.244.2.3 zone=zone-b'], { name: 'zonal-1' });
  const labels = { 'kubernetes.io/service-name': 'zonal' };
  table.setSlice({ ...slice, metadata: { ...slice.metadata, labels } });
  table.commit();
  table.setNode(testNode({ zone: 'zone-b' }));
  assert.deepEqual(
    table.commit().change.frontends.map(({ key }) => key),
    ['ipv4/10.96.0.2/TCP/80'],
  );
});

test('a contested address passes to the next Service when its owner is deleted, and back', () => {
  const { table } = webTable();
  const key = 'ipv4/203.0.113.1/TCP/80';
  const claim = (name: string, day: number) =>
    webService(
      { clusterIPs: [`10.96.0.${day}`], externalIPs: ['203.0.113.1'] },
      { name, creationTimestamp: `2025-02-0${day}T00:00:00Z` },
    );
  for (const [name, day] of [
    ['third', 4],
    ['first', 2],
    ['second', 3],
  ] as const)
    table.setService(claim(name, day));
  const holder = () => {
    const { map, findings } = table.commit();
    const count = findings.added.length - findings.removed.length;
    return [map.frontends.get(key)?.owner.name, map.findings.length, count];
  };
  assert.deepEqual(holder(), ['first', 2, 2]);
  table.deleteService('default', 'first');
  assert.deepEqual(holder(), ['second', 1, -1]);
  // The recreated Service is the youngest now.
  table.setService(claim('first', 5));
  assert.deepEqual(holder(), ['second', 2, 1]);
  table.deleteService('default', 'second');
  table.deleteService('default', 'third');
  assert.deepEqual(holder(), ['first', 0, -2]);
  table.deleteService('default', 'first');
  assert.deepEqual(holder(), [undefined, 0, 0]);
});

test('a Service that is recreated unchanged, but younger, loses a contested address to an older one', () => {
  const { table } = webTable();
  const key = 'ipv4/203.0.113.1/TCP/80';
  const claim = (name: string, day: number) =>
    webService(
      { clusterIPs: [`10.96.0.${name.length}`], externalIPs: ['203.0.113.1'] },
      { name, creationTimestamp: `2025-02-0${day}T00:00:00Z` },
    );
  table.setService(claim('older', 1));
  table.setService(claim('younger', 2));
  assert.equal(table.commit().map.frontends.get(key)?.owner.name, 'older');
  table.setService(claim('older', 3));
  const { map, change } = table.commit();
  assert.equal(map.frontends.get(key)?.owner.name, 'younger');
  assert.deepEqual(
    change.frontends.map((frontend) => frontend.key),
    [key],
  );
});

test('a change of an option alone changes the frontend', () => {
  const { table } = webTable();
  for (const annotations of [
    { 'fairlead.dev/failover': 'disabled' },
    { 'fairlead.dev/failover': 'disabled', 'fairlead.dev/balance': 'maglev' },
    {
      'fairlead.dev/failover': 'disabled',
      'fairlead.dev/balance': 'maglev',
      'fairlead.dev/ipvs-scheduler': 'sh',
    },
  ]) {
    table.setService(webService({}, { annotations }));
    assert.equal(table.commit().change.frontends.length, 1, JSON.stringify(annotations));
  }
});

test('ejection and its end do not affect other Services', () => {
  const { table } = webTable();
  const size = () => {
    const { map, change } = table.commit();
    const route = map.frontends.get(WEB)?.routes.pod;
    return [change.frontends.length, route?.action === 'forward' ? route.pool.endpoints.length : 0];
  };
  table.setEjected(new Set(['10.244.1.2:8080/TCP', '10.9.9.9:1/TCP']));
  assert.deepEqual(size(), [1, 1]);
  table.setEjected(new Set(['10.9.9.9:1/TCP']));
  assert.deepEqual(size(), [1, 2]);
  table.setEjected(new Set());
  assert.deepEqual(size(), [0, 2]);
});

test('findings appear and disappear with their cause', () => {
  const { table } = webTable();
  table.setSlice(webSlice(['10.244.1.2 @node-1', '10.244.1']));
  const bad = table.commit();
  assert.deepEqual(
    [bad.findings.added.length, bad.findings.removed.length, bad.map.findings.length],
    [1, 0, 1],
  );
  table.setService(webService({ sessionAffinity: 'ClientIP' }));
  const same = table.commit();
  assert.deepEqual([same.findings.added.length, same.findings.removed.length], [0, 0]);
  table.deleteSlice('default', 'web-1');
  const good = table.commit();
  assert.deepEqual([good.findings.removed.length, good.map.findings.length], [1, 0]);
});

test('deleting an unknown object does nothing', () => {
  const { table } = webTable();
  table.deleteService('default', 'absent');
  table.deleteSlice('default', 'nothing');
  assert.ok(isEmptyChange(table.commit().change));
});
