import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pinDirectory, removePins } from '../dataplane/ebpf/pins.ts';
import {
  type Client,
  makeTestGroup,
  removeTestGroup,
  startClient,
} from '../dataplane/ebpf/testing/client.ts';
import { openEbpf } from '../dataplane/testing/open-ebpf.ts';
import {
  clusterIP,
  createServiceScene,
  FAMILIES,
  LOCAL,
  TARGET,
} from '../dataplane/testing/service-scene.ts';
import { PATIENCE_MS, type Place } from '../dataplane/testing/topology.ts';
import { readEntryQuestion, readEntryText } from './bpf-entry-text.ts';

describe('the text of BPF map entries', () => {
  let group = '';
  let pinPath = '';
  let client: Client | null = null;
  const scene = createServiceScene({
    open: (netns) => openEbpf({ families: FAMILIES, netns, cgroup: group, pinPath }),
    ask: () => async (_from, _protocol, address, port) => {
      const asked = await client?.ask('tcp', address, port, { timeoutMs: PATIENCE_MS });
      return asked?.answer ?? assert.fail('there is no client');
    },
  });

  before(async () => {
    group = makeTestGroup();
    pinPath = `/run/flt-${randomBytes(3).toString('hex')}-bpf`;
    await scene.start();
    client = await startClient(scene.topology.namespace('pod3'), group);
  });
  after(async () => {
    await scene.close();
    await client?.close();
    if (pinPath) removePins(pinPath);
    if (group) await removeTestGroup(group);
  });

  test('has the entries of a connection in the kernel', async () => {
    const frontends = scene.service(28, LOCAL, 'plain', { affinitySeconds: 100 });
    await scene.sync(frontends);
    const pin = (map: string) => join(pinDirectory(pinPath), `map-${map}`);
    for (const family of FAMILIES) {
      const address = clusterIP(family, 28);
      const used = (await scene.ask('pod3', 'TCP', address, 80)).split(' ')[0] as Place;
      const frontend = frontends.find((one) => one.address === address && one.protocol === 'TCP');
      assert.ok(frontend);
      const source = scene.topology.address('pod3', family);
      const packet = { source, sourceClass: 'pod', destination: address, port: 80, protocol: 'TCP' } as const;
      const [key = '', client = '', slots = ''] = scene.dataplane
        .locate(frontend, packet)
        .map(({ object }) => {
          const question = readEntryQuestion(object);
          assert.ok(question, object);
          return readEntryText(pinPath, question);
        });
      const [, id, first] =
        /\nvalue: id (\d+), affinity_seconds 100, balance RANDOM\n {2}routes\[POD\]: action FORWARD, first (\d+), count 2\n/.exec(
          key,
        ) ?? assert.fail(key);
      assert.match(
        key,
        new RegExp(`^# bpftool map lookup pinned ${pin('frontends')} key hex( [0-9a-f]{2}){20}\n`),
      );
      assert.ok(key.includes(`\nkey: address ${address}, port 80, protocol TCP\n`), key);
      const endpoint = (place: Place) => `address ${scene.topology.address(place, family)}, port ${TARGET}`;
      assert.deepEqual(
        slots.split('\n').map((line) => line.replace(/, backend \d+$/, '')),
        [
          `# bpftool map dump pinned ${pin('endpoints')}`,
          ...LOCAL.map((place, i) => `key ${Number(first) + i}: ${endpoint(place)}, owner ${id}`),
        ],
      );
      assert.match(
        client,
        new RegExp(`\\nkey: client \\d+, frontend ${id}; value: at \\d+, ${endpoint(used)}$`),
      );
    }
  });

  test('says that an entry is missing', async () => {
    const question = { map: 'frontends', ip: '10.96.0.99', port: 80, protocol: 'UDP' } as const;
    assert.match(readEntryText(pinPath, question), /\nthe map has no such entry now$/);
  });
});
