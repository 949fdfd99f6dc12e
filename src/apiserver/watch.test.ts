import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { CORE, configMap, startApi } from './testing/api.ts';

const clock = manualClock(Date.parse('2026-01-01T00:00:00Z'));
const api = startApi({ clock });
after(() => api.server.close());
const { request } = api;
const merge = { 'content-type': 'application/merge-patch+json' };

/** The first events of a watch; `act` is done once the watch runs. */
async function events(
  query: string,
  count: number,
  act: () => Promise<unknown>,
): Promise<[string, string][]> {
  const end = new AbortController();
  const stream = api.watch(`${CORE}/configmaps?watch=true&${query}`, end.signal);
  const seen: [string, string][] = [];
  const first = stream.next();
  await act();
  for (let next = await first; !next.done; next = await stream.next()) {
    const { type, object } = next.value;
    seen.push([type, object.metadata.name ?? String(object['kind'])]);
    if (seen.length === count) break;
  }
  end.abort();
  await stream.return(undefined);
  return seen;
}

async function version(): Promise<string> {
  return (await request('GET', `${CORE}/configmaps`)).body.metadata.resourceVersion;
}

test('a watch from a version shows the changes after it, in order', async () => {
  const from = await version();
  const seen = await events(`resourceVersion=${from}`, 3, async () => {
    await request('POST', `${CORE}/configmaps`, configMap('w1'));
    await request('PATCH', `${CORE}/configmaps/w1`, { data: { a: 'b' } }, merge);
    await request('DELETE', `${CORE}/configmaps/w1`);
  });
  assert.deepEqual(seen, [
    ['ADDED', 'w1'],
    ['MODIFIED', 'w1'],
    ['DELETED', 'w1'],
  ]);
});

test('a forced deletion of a pod on a node shows its grace period of 0 before it is gone', async () => {
  const spec = { nodeName: 'n', containers: [{ name: 'c', image: 'i' }] };
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'forced' }, spec };
  await request('POST', `${CORE}/pods`, pod);
  const from = await version();
  await request('DELETE', `${CORE}/pods/forced?gracePeriodSeconds=0`);
  const end = new AbortController();
  const stream = api.watch(`${CORE}/pods?watch=true&resourceVersion=${from}`, end.signal);
  const seen: unknown[] = [];
  for await (const { type, object } of stream) {
    const { deletionGracePeriodSeconds, generation } = object.metadata;
    seen.push([type, deletionGracePeriodSeconds, generation]);
    if (seen.length === 2) break;
  }
  end.abort();
  assert.deepEqual(seen, [
    ['MODIFIED', 0, 2],
    ['DELETED', 0, 2],
  ]);
});

test('a watch that starts late receives the earlier changes', async () => {
  const from = await version();
  await request('POST', `${CORE}/configmaps`, configMap('w2'));
  await request('PATCH', `${CORE}/configmaps/w2`, { data: { a: 'b' } }, merge);
  assert.deepEqual(await events(`resourceVersion=${from}`, 2, async () => {}), [
    ['ADDED', 'w2'],
    ['MODIFIED', 'w2'],
  ]);
});

test('a watch without a version starts with the existing objects', async () => {
  const query = 'fieldSelector=metadata.name%3Dw2';
  assert.deepEqual(await events(query, 1, async () => {}), [['ADDED', 'w2']]);
});

test('watch-list: the existing objects, then a bookmark that marks their end', async () => {
  const query =
    'fieldSelector=metadata.name%3Dw2&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true';
  const end = new AbortController();
  const stream = api.watch(`${CORE}/configmaps?watch=true&${query}`, end.signal);
  assert.equal((await stream.next()).value?.type, 'ADDED');
  const mark = (await stream.next()).value;
  assert.equal(mark?.type, 'BOOKMARK');
  assert.equal(mark?.object.metadata.annotations?.['k8s.io/initial-events-end'], 'true');
  end.abort();
  await stream.return(undefined);
});

test('an object that no longer matches a selector is deleted for the watcher, one that starts to match is added', async () => {
  await request('POST', `${CORE}/configmaps`, configMap('w3', {}, { in: 'yes' }));
  const from = await version();
  const seen = await events(`labelSelector=in%3Dyes&resourceVersion=${from}`, 2, async () => {
    await request('PATCH', `${CORE}/configmaps/w3`, { metadata: { labels: { in: 'no' } } }, merge);
    await request('PATCH', `${CORE}/configmaps/w3`, { data: { unseen: 'x' } }, merge);
    await request('PATCH', `${CORE}/configmaps/w3`, { metadata: { labels: { in: 'yes' } } }, merge);
  });
  assert.deepEqual(seen, [
    ['DELETED', 'w3'],
    ['ADDED', 'w3'],
  ]);
});

test('bookmarks are sent every minute, and before the watch ends at its timeout', async () => {
  const end = new AbortController();
  const from = await version();
  const stream = api.watch(
    `${CORE}/configmaps?watch=true&resourceVersion=${from}&allowWatchBookmarks=true&timeoutSeconds=90`,
    end.signal,
  );
  const first = stream.next();
  // The request is handled asynchronously: let it begin before time moves.
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(60_000);
  assert.equal((await first).value?.type, 'BOOKMARK');
  const second = stream.next();
  clock.advance(30_000);
  assert.equal((await second).value?.type, 'BOOKMARK');
  assert.equal((await stream.next()).done, true);
});

test('a version before the history gets 410, for watches and lists', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-watch-'));
  try {
    const dataFile = join(folder, 'data.db');
    const first = startApi({ dataFile });
    await first.request('POST', `${CORE}/configmaps`, configMap('old'));
    await first.server.close();
    const second = startApi({ dataFile });
    const watched = await second.request('GET', `${CORE}/configmaps?watch=true&resourceVersion=2`);
    assert.equal(watched.status, 410);
    assert.equal(watched.body.reason, 'Expired');
    assert.match(watched.body.message, /^too old resource version: 2/);
    const token = Buffer.from('2:default/a').toString('base64url');
    const paged = await second.request('GET', `${CORE}/configmaps?limit=1&continue=${token}`);
    assert.equal(paged.status, 410);
    const rest = await second.request('GET', `${CORE}/configmaps?continue=${paged.body.metadata.continue}`);
    assert.equal(rest.status, 200, 'the token in the refusal continues with the current objects');
    assert.equal(rest.body.items[0].metadata.name, 'old');
    await second.server.close();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('all pages show one version, despite changes between them', async () => {
  for (const name of ['p1', 'p2', 'p3', 'p4', 'p5']) {
    await request('POST', `${CORE}/configmaps`, configMap(name, {}, { paged: 'yes' }));
  }
  const path = `${CORE}/configmaps?labelSelector=paged&limit=2`;
  const { body: first } = await request('GET', path);
  assert.equal(first.items.length, 2);
  await request('DELETE', `${CORE}/configmaps/p3`);
  await request('POST', `${CORE}/configmaps`, configMap('p35', {}, { paged: 'yes' }));
  const { body: second } = await request('GET', `${path}&continue=${first.metadata.continue}`);
  const { body: third } = await request('GET', `${path}&continue=${second.metadata.continue}`);
  const names = [first, second, third].flatMap((page) =>
    page.items.map((item: { metadata: { name: string } }) => item.metadata.name),
  );
  assert.deepEqual(names, ['p1', 'p2', 'p3', 'p4', 'p5']);
  assert.equal(second.metadata.resourceVersion, first.metadata.resourceVersion);
  assert.equal(third.metadata.continue, undefined);
});

test('without selectors, a page contains the number of remaining objects', async () => {
  const { body: all } = await request('GET', `${CORE}/configmaps`);
  const { body: page } = await request('GET', `${CORE}/configmaps?limit=1`);
  assert.equal(page.metadata.remainingItemCount, all.items.length - 1);
});

test('a list at an exact version shows that version', async () => {
  const from = await version();
  await request('POST', `${CORE}/configmaps`, configMap('later'));
  const { body } = await request(
    'GET',
    `${CORE}/configmaps?resourceVersion=${from}&resourceVersionMatch=Exact`,
  );
  assert.equal(body.metadata.resourceVersion, from);
  assert.ok(!body.items.some((item: { metadata: { name: string } }) => item.metadata.name === 'later'));
});

test('resourceVersion=0 ignores the limit', async () => {
  const { body } = await request('GET', `${CORE}/configmaps?limit=1&resourceVersion=0`);
  assert.ok(body.items.length > 1);
});

test('an invalid continue token is refused', async () => {
  assert.equal((await request('GET', `${CORE}/configmaps?limit=1&continue=xyz`)).status, 400);
});

test('watches end when the server closes', async () => {
  const other = startApi();
  const stream = other.watch(`${CORE}/configmaps?watch=true`, new AbortController().signal);
  const next = stream.next().then(
    () => 'ended',
    () => 'ended',
  );
  await new Promise((resolve) => setImmediate(resolve));
  await other.server.close();
  assert.equal(await next, 'ended');
});
