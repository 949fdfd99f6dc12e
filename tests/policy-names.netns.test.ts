import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { encodeMessage } from '../src/dns/encode.ts';
import { TYPE } from '../src/dns/message.ts';
import { bindUdpIn } from '../src/kernel/netns.ts';
import { addressBytes } from '../src/lib/address.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { echoBytes, Undo } from '../src/network/testing/packets.ts';
import { nameGroup } from '../src/policy/name-group.ts';
import { MAX_ADDRESSES_OF_NAME, MAX_ADDRESSES_OF_POD } from '../src/policy/name-limits.ts';
import { noteBytes, noteToken } from '../src/policy/name-notes.ts';
import { pod as podObject } from '../src/policy/testing/policy-objects.ts';
import { busyKernel } from './testing/busy-kernel.ts';
import {
  alias,
  type NamedPod,
  type NamedScene,
  namedPolicy,
  outsideAddress,
  record,
  startNamedScene,
} from './testing/named-scene.ts';

const NAMES = '*.example.com:443, api.example.org';
const undo = new Undo();
let scene: NamedScene;
let [a, b, c] = [] as unknown as [NamedPod, NamedPod, NamedPod];

const POLICIES = [
  namedPolicy('a', NAMES, 'a'),
  namedPolicy('b', NAMES, 'b'),
  namedPolicy('c', 'n7.example.net', 'c', 'y'),
];

before(async () => {
  scene = await startNamedScene(undo, ['x/a', 'x/b', 'y/c']);
  [a, b, c] = ['x/a', 'x/b', 'y/c'].map((key) => scene.pods.get(key)) as [NamedPod, NamedPod, NamedPod];
  await scene.setPolicies(...POLICIES);
});
after(() => undo.run());

const denied = () =>
  scene.current.enforcement.denied('ipv4', 'egress') + scene.current.enforcement.denied('ipv6', 'egress');
const refusals = () => scene.current.refused.map(({ refusal }) => refusal);
/** Addresses that no earlier test used. */
let next = 1000;

/** Answers with these records for the time of `run`. */
async function withZone(zone: NamedScene['zone'], run: () => Promise<void>): Promise<void> {
  const usual = scene.zone;
  scene.zone = (name, type) => zone(name, type);
  try {
    await run();
  } finally {
    scene.zone = usual;
  }
}

test('the first packet after an answer passes: over UDP and TCP, from the cache, in both families', async () => {
  const before = denied();
  for (let n = 1; n <= 50; n++) {
    for (const type of [TYPE.A, TYPE.AAAA]) {
      const address = outsideAddress(n, type === TYPE.AAAA);
      const overUdp = () => a.ask(`n${n}.example.com`, type);
      const overTcp = () => a.askOverTcp(`N${n}.Example.COM`, type);
      for (const ask of n % 2 ? [overUdp, overTcp] : [overTcp, overUdp]) {
        assert.equal((await ask()).answers.length, 1);
        assert.ok(await a.connects(address), `${address} after its answer`);
      }
    }
  }
  assert.equal(denied(), before, 'no packet was dropped');
});

test('the first packet passes for questions that two pods ask at once, and behind aliases', async () => {
  const before = denied();
  const address = outsideAddress(next++);
  await withZone(
    (name) =>
      name === 'www.example.com'
        ? [
            alias(name, 'edge.cdn.test', 300),
            alias('edge.cdn.test', 'e1.cdn.test'),
            record('e1.cdn.test', address),
          ]
        : [],
    async () => {
      await Promise.all(
        [a, b].map(async (pod) => {
          await pod.ask('www.example.com');
          assert.ok(await pod.connects(address));
        }),
      );
    },
  );
  assert.equal(denied(), before);
});

test('the first packet passes while the kernel takes tens of thousands of elements of other tables', async () => {
  const before = denied();
  const busy = busyKernel(scene.node);
  try {
    for (let n = 2000; n < 2200; n++) {
      await a.ask(`n${n}.example.com`);
      assert.ok(await a.connects(outsideAddress(n)));
    }
  } finally {
    await busy.end();
  }
  assert.ok(busy.transactions() > 0, 'transactions were committed meanwhile');
  assert.equal(denied(), before);
});

/** Each row: a way around, which returns the pod and the address that it then connects to. */
const BYPASSES: readonly (readonly [string, () => Promise<readonly [NamedPod, string]>])[] = [
  ['an address that no pod asked for', async () => [a, outsideAddress(next++)]],
  [
    'an address that another pod with the same policy got',
    async () => {
      const n = next++;
      await b.ask(`n${n}.example.com`);
      assert.ok(await b.connects(outsideAddress(n)));
      return [a, outsideAddress(n)];
    },
  ],
  [
    'an address that a pod with another policy got',
    async () => {
      await c.ask('n7.example.net');
      assert.ok(await c.connects(outsideAddress(7)));
      return [b, outsideAddress(7)];
    },
  ],
  [
    'a name of another policy',
    async () => {
      await b.ask('n7.example.net');
      return [b, outsideAddress(7)];
    },
  ],
  [
    'a name that only ends like a pattern',
    async () => {
      const n = next++;
      for (const name of [`n${n}.evilexample.com`, `n${n}.example.com.evil.test`]) await a.ask(name);
      return [a, outsideAddress(n)];
    },
  ],
  [
    'a label that contains a dot, or other odd bytes',
    async () => {
      const address = outsideAddress(next++);
      await withZone(
        (name) => [record(name, address)],
        async () => {
          for (const name of [
            'evil\\.example.com',
            'a\\000.example.com',
            'a\\032b.example.com',
            '\\228.example.com',
          ])
            assert.equal((await a.ask(name)).answers.length, 1, name);
        },
      );
      return [a, address];
    },
  ],
  [
    'an alias that leads to an allowed name',
    async () => {
      const address = outsideAddress(next++);
      await withZone(
        (name) => [alias(name, 'www2.example.com'), record('www2.example.com', address)],
        async () => void (await a.ask('www.evil.test')),
      );
      return [a, address];
    },
  ],
  [
    'a record of another name in the answer',
    async () => {
      const address = outsideAddress(next++);
      await withZone(
        (name) => [record(name, outsideAddress(next++)), record('other.example.com', address)],
        async () => void (await a.ask('mixed.example.com')),
      );
      return [a, address];
    },
  ],
  [
    'an IPv4 address in IPv6',
    async () => {
      const address = outsideAddress(next++);
      await withZone(
        (name) => [record(name, `::ffff:${address}`)],
        async () => void (await a.ask('mapped.example.com', TYPE.AAAA)),
      );
      assert.ok(refusals().includes('address inside the cluster'));
      return [a, address];
    },
  ],
  ...(
    [
      '10.244.1.1',
      '172.30.9.11',
      '169.254.169.254',
      '127.0.0.1',
      '10.96.0.1',
      '224.0.0.1',
      '0.0.0.0',
    ] as const
  ).map(
    (address) =>
      [
        `a zone that answers ${address}`,
        async () => {
          await withZone(
            (name) => [record(name, address)],
            async () => void (await a.ask(`is-${address}.example.com`)),
          );
          assert.ok(
            scene.current.refused.some(
              ({ name, refusal }) =>
                name === `is-${address}.example.com` && refusal === 'address inside the cluster',
            ),
          );
          return [a, address] as const;
        },
      ] as const,
  ),
  [
    'a zone that answers the address of a pod',
    async () => {
      await withZone(
        (name) => [record(name, b.ips[0] ?? '')],
        async () => void (await a.ask('pod.example.com')),
      );
      return [a, b.ips[0] ?? ''];
    },
  ],
  [
    'answers that the pod sends itself',
    async () => {
      const address = outsideAddress(next++);
      const { question, ...header } = {
        question: { name: 'forged.example.com', type: TYPE.A, class: 1 },
        id: 1,
      };
      const bytes = encodeMessage({
        header: {
          ...{
            ...header,
            response: true,
            opcode: 0,
            authoritative: true,
            truncated: false,
            recursionDesired: true,
          },
          ...{ recursionAvailable: true, authenticData: false, checkingDisabled: false, rcode: 0 },
        },
        ...{
          question,
          answers: [record(question.name, address)],
          authorities: [],
          additionals: [],
          edns: null,
        },
      });
      await sendFrom(a, bytes, [scene.dns[0] ?? '', a.ips[0] ?? ''], 53);
      return [a, address];
    },
  ],
  [
    'notes to the kernel from a pod, even with their token',
    async () => {
      const address = outsideAddress(next++);
      const [from, to] = [a.ips[0] ?? '', address].map((one) => addressBytes(one) ?? new Uint8Array());
      const group = nameGroup(['*.example.com']);
      const token = noteToken(scene.secret, group.id);
      const bytes = noteBytes(token, 0, from ?? new Uint8Array(), to ?? new Uint8Array());
      await sendFrom(a, bytes, ['172.30.9.11', scene.dns[0] ?? ''], 53);
      return [a, address];
    },
  ],
];

async function sendFrom(
  pod: NamedPod,
  bytes: Uint8Array,
  to: readonly string[],
  port: number,
): Promise<void> {
  const socket = createSocket('udp4');
  const listening = once(socket, 'listening');
  socket.bind({ fd: bindUdpIn(pod.netns, pod.ips[0] ?? '', 0) });
  await listening;
  for (const one of to) await new Promise<void>((resolve) => socket.send(bytes, port, one, () => resolve()));
  socket.close();
}

for (const [name, prepare] of BYPASSES) {
  test(`denied: ${name}`, async () => {
    const [pod, address] = await prepare();
    assert.equal(await pod.connects(address, false), false);
  });
}

test('a port that the annotation does not name is denied', async () => {
  const [n, other] = [next++, next++];
  await scene.setPolicies(namedPolicy('a', '*.example.com:8443, api.example.org', 'a'), ...POLICIES.slice(1));
  await a.ask(`n${n}.example.com`);
  assert.equal(await a.connects(outsideAddress(n), false), false);
  await withZone(
    (name) => [record(name, outsideAddress(other))],
    async () => void (await a.ask('api.example.org')),
  );
  assert.ok(await a.connects(outsideAddress(other)), 'without a port, all are allowed');
  await scene.setPolicies(...POLICIES);
});

test('a policy that is edited keeps the addresses of the names that it still has', async () => {
  const [kept, dropped] = [next++, next++];
  const before = namedPolicy('a', `n${kept}.example.com, n${dropped}.example.com`, 'a');
  await scene.setPolicies(before, ...POLICIES.slice(1));
  for (const n of [kept, dropped]) {
    await a.ask(`n${n}.example.com`);
    assert.ok(await a.connects(outsideAddress(n)));
  }
  await scene.setPolicies(
    namedPolicy('a', `n${kept}.example.com, new.example.com`, 'a'),
    ...POLICIES.slice(1),
  );
  assert.ok(await a.connects(outsideAddress(kept)));
  assert.equal(await a.connects(outsideAddress(dropped), false), false);
  await scene.setPolicies(...POLICIES);
  assert.equal(await a.connects(outsideAddress(dropped), false), false);
});

test('a name with 10,000 addresses, and a flood of names, are bounded, and answered', async () => {
  let from = 20_000;
  await withZone(
    (name) => Array.from({ length: 1000 }, (_, i) => record(name, outsideAddress(from + i), 0)),
    async () => {
      for (; from < 30_000; from += 1000) {
        const { answers } = await b.askOverTcp('many.example.com');
        assert.equal(answers.length, 1000);
      }
    },
  );
  assert.ok(refusals().includes('addresses of a name'));
  assert.ok(await b.connects(outsideAddress(20_999)));
  assert.equal(await b.connects(outsideAddress(21_000), false), false);
  for (let n = 30_000; n < 30_000 + MAX_ADDRESSES_OF_POD; n++)
    assert.equal((await b.ask(`n${n}.example.com`)).answers.length, 1);
  assert.ok(refusals().includes('names of a pod'));
  assert.ok(scene.learned.counts().addresses <= 3 * MAX_ADDRESSES_OF_POD);
  assert.ok(elementsOf(b) <= MAX_ADDRESSES_OF_POD && elementsOf(b) > MAX_ADDRESSES_OF_NAME);
  // Other pods are not affected.
  const n = next++;
  await a.ask(`n${n}.example.com`);
  assert.ok(await a.connects(outsideAddress(n)));
});

/** Counts the elements of a pod in the kernel. */
function elementsOf(pod: NamedPod): number {
  const text = execFileSync(
    'ip',
    ['netns', 'exec', scene.node, 'nft', 'list', 'table', 'ip', 'fairlead-policy'],
    {
      encoding: 'utf8',
      maxBuffer: 64 << 20,
    },
  );
  return text.split(`${pod.ips[0]} . 198.`).length - 1;
}

test('the next agent keeps what pods got, with and without its file; not of pods that are gone', async () => {
  const [first, second] = [next++, next++];
  await a.ask(`n${first}.example.com`);
  await scene.restart(scene.current.kept());
  assert.ok(await a.connects(outsideAddress(first)));
  const group = nameGroup(['*.example.com']).id;
  assert.equal(scene.learned.find('x/a', group, outsideAddress(first))?.name, `n${first}.example.com`);
  await a.ask(`n${second}.example.com`);
  await scene.restart();
  assert.ok(await a.connects(outsideAddress(second)), 'the kernel alone kept it');
  assert.equal(scene.learned.find('x/a', group, outsideAddress(second))?.name, '');
});

test('the next pod with an address does not inherit what its former pod got', async () => {
  const n = next++;
  await a.ask(`n${n}.example.com`);
  assert.ok(await a.connects(outsideAddress(n)));
  scene.table.deletePod('x/a');
  scene.table.setPod(podObject({ key: 'x/a2', ips: a.ips, labels: 'app=a' }));
  scene.current.enforcement.changed();
  await scene.current.enforcement.programmed();
  assert.equal(await a.connects(outsideAddress(n), false), false);
  await a.ask(`n${n}.example.com`);
  assert.ok(await a.connects(outsideAddress(n)));
  scene.table.deletePod('x/a2');
  scene.table.setPod(podObject({ key: 'x/a', ips: a.ips, labels: 'app=a' }));
  scene.current.enforcement.changed();
  await scene.current.enforcement.programmed();
});

test('an answer has no TTL beyond the time for which its addresses are allowed', async () => {
  await withZone(
    (name) => [record(name, outsideAddress(next++), 86_400)],
    async () => {
      assert.equal((await a.ask('long.example.com')).answers[0]?.ttl, 3600);
      assert.equal((await c.ask('long2.example.com')).answers[0]?.ttl, 86_400, 'no policy of c has the name');
    },
  );
});

test('an address is refused when its time has ended; its connections go on, and a new answer allows it again', async () => {
  const address = outsideAddress(next++);
  await withZone(
    (name) => [record(name, address, 1)],
    async () => void (await a.ask('short.example.com')),
  );
  const open = await a.open(address);
  await eventually(
    () => a.connects(address, false),
    (isOpen) => !isOpen,
    90_000,
  );
  assert.ok(await echoBytes(open, 10_000));
  open.destroy();
  await withZone(
    (name) => [record(name, address, 1)],
    async () => void (await a.ask('short.example.com')),
  );
  assert.ok(await a.connects(address));
});
