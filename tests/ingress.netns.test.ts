import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { createAuthority } from '../src/lib/pki.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import type { Explanation } from '../src/observe/explanation.ts';
import { type Cluster, freeLocalPort, HELLO, startCluster } from './testing/cluster.ts';

/** Ingresses through HAProxy, from outside, in the modes that work on every kernel; ipvs is in the virtual machine's tests. */
const MODES = ['nftables', 'iptables', 'ebpf', 'userspace'] as const;
/** In userspace mode the node opens the connections to its proxy. */
const seesClient = (mode: (typeof MODES)[number]) => mode !== 'userspace';
const HTTP = freeLocalPort();
const HTTPS = freeLocalPort();

const limited = (name: string, ranges: string) => `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: ${name}
  annotations: {nginx.ingress.kubernetes.io/whitelist-source-range: "${ranges}"}
spec:
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /${name}, pathType: Prefix, backend: {service: {name: hello, port: {number: 80}}}}
`;

const INGRESSES = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  tls: [{hosts: [shop.example], secretName: shop}]
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: hello, port: {number: 80}}}}
      - {path: /none, pathType: Prefix, backend: {service: {name: none, port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: any}
spec:
  rules:
  - http:
      paths:
      - {path: /any, pathType: Prefix, backend: {service: {name: hello, port: {number: 80}}}}
`;

let cluster: Cluster;
before(async () => {
  cluster = await startCluster([
    ...['--nodes', '2', '--ip-family', 'dual', '-f', HELLO],
    ...['-p', `${HTTP}:80/ingress`, '-p', `${HTTPS}:443/ingress`],
  ]);
});
after(() => cluster?.down());

const curl = async (...words: readonly string[]) =>
  (await cluster.fairlead('exec', 'outside', '--', 'curl', '-s', '-m', '5', ...words)).out;
const status = (...words: readonly string[]) => curl('-o', '/dev/null', '-w', '%{http_code}', ...words);
const addresses = async (): Promise<string[]> => {
  const ingress = JSON.parse(await cluster.ask('get', 'ingress', 'shop', '-o', 'json')) as {
    status?: { loadBalancer?: { ingress?: { ip: string }[] } };
  };
  return (ingress.status?.loadBalancer?.ingress ?? []).map(({ ip }) => ip);
};
const url = (address: string, path: string, scheme = 'http') =>
  `${scheme}://${address.includes(':') ? `[${address}]` : address}${path}`;
const proxies = () =>
  readdirSync('/proc')
    .filter((name) => /^[0-9]+$/.test(name))
    .filter((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        return words.includes('haproxy') && words.includes(cluster.stateRoot);
      } catch {
        return false;
      }
    })
    .map(Number);

test('without an Ingress there is no proxy', () => assert.deepEqual(proxies(), []));

describe('Ingresses', () => {
  let found: string[] = [];
  before(async () => {
    const authority = createAuthority('test', new Date());
    const { cert, key } = authority.issue({
      commonName: 'shop.example',
      names: ['shop.example'],
      usage: 'server',
    });
    const { out } = await cluster.fairlead(
      'exec',
      'outside',
      '--',
      'ip',
      '-o',
      'address',
      'show',
      'scope',
      'global',
    );
    const own = [...out.matchAll(/inet6? ([0-9a-f.:]+)\//g)].map(
      ([, ip = '']) => `${ip}/${ip.includes(':') ? 128 : 32}`,
    );
    await cluster.apply(limited('mine', own.join(',')) + limited('theirs', '192.0.2.0/24,2001:db8::/32'));
    const data = (text: string) => Buffer.from(text).toString('base64');
    await cluster.apply(
      `${INGRESSES}---\napiVersion: v1\nkind: Secret\nmetadata: {name: shop}\ntype: kubernetes.io/tls\ndata: {tls.crt: ${data(cert)}, tls.key: ${data(key)}}\n`,
    );
    await eventually(async () => {
      found = await addresses();
      if (found.length < 2) return false;
      for (const address of found)
        if ((await status('-H', 'Host: shop.example', url(address, '/'))) !== '200') return false;
      return true;
    });
  });

  for (const mode of MODES) {
    test(`answer by host and path from outside${seesClient(mode) ? ", with the client's address" : ''}, in mode ${mode}`, async () => {
      const switched = await cluster.fairlead('mode', mode);
      assert.equal(switched.status, 0, switched.error);
      for (const address of found) {
        const shop = ['-H', 'Host: shop.example'];
        assert.match(await curl(...shop, url(address, '/')), /hello from/);
        assert.equal(await status(...shop, url(address, '/none')), '503');
        assert.equal(await status('-H', 'Host: other.example', url(address, '/')), '404');
        assert.equal(await status('-H', 'Host: other.example', url(address, '/any')), '200');
        assert.equal(await status(...shop, url(address, '/%2e%2e/x')), '400');
        // Its range is the address of this client alone.
        assert.equal(await status(...shop, url(address, '/mine')), seesClient(mode) ? '200' : '403');
        assert.equal(await status(...shop, url(address, '/theirs')), '403');
      }
    });
  }

  test('explain says what they answer, of a name that DNS does not know as well', async () => {
    const [address = ''] = found;
    const asked = ['http://shop.example/', 'http://shop.example/none', 'http://shop.example/mine'];
    const further = [
      'http://shop.example/theirs',
      'https://shop.example/',
      url(address, '/any'),
      url(address, '/x'),
    ];
    for (const one of [...asked, ...further]) {
      const place = [80, 443].flatMap((port) => ['--resolve', `shop.example:${port}:${address}`]);
      const real = await status('-k', ...place, one);
      const { out, error } = await cluster.fairlead('explain', 'outside', one, '-o', 'json');
      assert.match(out, /"gateway"/, error);
      const { gateway, packet, verdict } = JSON.parse(out) as Explanation;
      assert.equal(gateway?.result === 'forwarded' ? '200' : String(gateway?.status), real, `${one}\n${out}`);
      assert.equal(verdict, 'delivered');
      assert.ok(found.includes(packet?.destination ?? ''), out);
      if (gateway?.result !== 'forwarded') continue;
      const words = gateway.next?.split(' ').slice(1) ?? [];
      const next = await cluster.fairlead(...words);
      assert.match(next.out, /^DELIVERED/, gateway.next ?? '');
    }
  });

  test('terminate TLS with the certificate of the Secret, by server name', async () => {
    for (const address of found) {
      const target = `shop.example:443:${address.includes(':') ? `[${address}]` : address}`;
      const words = ['-k', '-v', '--resolve', target, 'https://shop.example/'];
      const { out, error } = await cluster.fairlead(
        'exec',
        'outside',
        '--',
        'curl',
        '-s',
        '-m',
        '5',
        ...words,
      );
      assert.match(out, /hello from/);
      assert.match(error, /subject: CN=shop\.example/);
      assert.match(error, /HTTP\/2 200/);
    }
  });

  test('answer at the published ports of this machine', async () => {
    const answer = await fetch(`http://127.0.0.1:${HTTP}/any`);
    assert.equal(answer.status, 200);
  });

  test('lose no request when pods are replaced', async () => {
    const [address = ''] = found;
    const load = cluster.load('outside', url(address, '/any'));
    await cluster.ask('rollout', 'restart', 'deployment/hello');
    await cluster.ask('rollout', 'status', 'deployment/hello', '--timeout=120s');
    const { failures, count } = await load.stop();
    assert.deepEqual(failures, {});
    assert.ok(count > 0);
  });

  test('lose no request when routes change', async () => {
    const [address = ''] = found;
    const load = cluster.load('outside', url(address, '/any'));
    for (let i = 0; i < 20; i++) await cluster.apply(INGRESSES.replace('/none', `/none-${i}`));
    const { failures } = await load.stop();
    assert.deepEqual(failures, {});
  });

  test('the proxies end with the last Ingress', async () => {
    await cluster.ask('delete', 'ingress', '--all');
    await eventually(() => proxies().length === 0);
  });
});
