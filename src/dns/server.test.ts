import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { Registry } from 'prom-client';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { seededNumbers, sendHostileRequests } from '../lib/testing/hostile-http.ts';
import { createForwarder, type Forwarder } from './forwarder.ts';
import { CLASS_IN, emptyAnswer, RCODE, TYPE } from './message.ts';
import { createDnsMetrics } from './metrics.ts';
import { type DnsServer, startDnsServer } from './server.ts';
import { ask, frame, recordText } from './testing/client.ts';
import { service, shopZone } from './testing/cluster.ts';
import { malformedPackets } from './testing/malformed.ts';
import { type FakeUpstream, startUpstream } from './testing/upstream.ts';
import type { Zone } from './zone.ts';
import type { PodMode } from './zone-answer.ts';

const SOA = 'cluster.local 5 SOA ns.dns.cluster.local hostmaster.cluster.local';

interface Row {
  readonly what: string;
  readonly ask: string;
  readonly rcode?: keyof typeof RCODE;
  /** "TTL TYPE DATA" of records with the queried name, or "NAME TTL TYPE DATA". */
  readonly answer?: readonly string[];
  readonly authority?: readonly string[];
  readonly additional?: readonly string[];
  readonly pods?: PodMode;
}

const ns = 'shop.svc.cluster.local';
const ROWS: readonly Row[] = [
  {
    what: 'the version of the specification',
    ask: 'dns-version.cluster.local TXT',
    answer: ['5 TXT "1.1.0"'],
  },
  { what: 'dns-version has no address', ask: 'dns-version.cluster.local A', authority: [SOA] },
  { what: 'cluster IP, IPv4', ask: `web.${ns} A`, answer: ['5 A 10.96.0.1'] },
  { what: 'cluster IP, IPv6', ask: `web.${ns} AAAA`, answer: ['5 AAAA fd00:96::1'] },
  { what: 'a Service without IPv6: no data', ask: `plain.${ns} AAAA`, authority: [SOA] },
  { what: 'an existing name with another type: no data', ask: `web.${ns} MX`, authority: [SOA] },
  {
    what: 'answers repeat the case of the question',
    ask: `WeB.Shop.sVc.Cluster.Local A`,
    answer: ['5 A 10.96.0.1'],
  },
  {
    what: 'SRV of a named port',
    ask: `_http._tcp.web.${ns} SRV`,
    answer: [`5 SRV 0 100 80 web.${ns}`],
    additional: [`web.${ns} 5 A 10.96.0.1`, `web.${ns} 5 AAAA fd00:96::1`],
  },
  {
    what: 'SRV by protocol UDP',
    ask: `_quic._udp.web.${ns} SRV`,
    answer: [`5 SRV 0 100 443 web.${ns}`],
    additional: [`web.${ns} 5 A 10.96.0.1`, `web.${ns} 5 AAAA fd00:96::1`],
  },
  {
    what: 'SRV of the Service name alone lists every port',
    ask: `web.${ns} SRV`,
    answer: [`5 SRV 0 50 80 web.${ns}`, `5 SRV 0 50 443 web.${ns}`],
    additional: [`web.${ns} 5 A 10.96.0.1`, `web.${ns} 5 AAAA fd00:96::1`],
  },
  {
    what: 'SRV with the wrong protocol',
    ask: `_http._udp.web.${ns} SRV`,
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  { what: 'SRV of an unknown port', ask: `_ftp._tcp.web.${ns} SRV`, rcode: 'NXDOMAIN', authority: [SOA] },
  {
    what: 'an unnamed port has no SRV name',
    ask: `_._tcp.plain.${ns} SRV`,
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  { what: 'an SRV name has no address', ask: `_http._tcp.web.${ns} A`, authority: [SOA] },
  { what: 'the name between port and Service exists', ask: `_tcp.web.${ns} A`, authority: [SOA] },
  { what: 'but not for another protocol', ask: `_sctp.web.${ns} A`, rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'headless: every ready endpoint', ask: `db.${ns} A`, answer: ['5 A 10.244.1.5', '5 A 10.244.2.6'] },
  { what: 'headless, IPv6', ask: `db.${ns} AAAA`, answer: ['5 AAAA fd00:244::5', '5 AAAA fd00:244::6'] },
  {
    what: 'headless with publishNotReadyAddresses: all endpoints',
    ask: `peers.${ns} A`,
    answer: ['5 A 10.244.3.1', '5 A 10.244.3.2'],
  },
  { what: 'headless without ready endpoints', ask: `idle.${ns} A`, rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'headless of the other family only: no data', ask: `peers.${ns} AAAA`, authority: [SOA] },
  { what: 'an endpoint by its host name', ask: `db-0.db.${ns} A`, answer: ['5 A 10.244.1.5'] },
  { what: 'its IPv6 address', ask: `db-0.db.${ns} AAAA`, answer: ['5 AAAA fd00:244::5'] },
  {
    what: 'an endpoint without host name, named by its address',
    ask: `10-244-2-6.db.${ns} A`,
    answer: ['5 A 10.244.2.6'],
  },
  { what: 'the same, IPv6', ask: `fd00-244--6.db.${ns} AAAA`, answer: ['5 AAAA fd00:244::6'] },
  { what: 'IPv6 written in full', ask: `fd00-244-0-0-0-0-0-6.db.${ns} AAAA`, answer: ['5 AAAA fd00:244::6'] },
  {
    what: 'an endpoint with host name has no other name',
    ask: `10-244-1-5.db.${ns} A`,
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  { what: 'an endpoint that is not ready', ask: `db-2.db.${ns} A`, rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'one of publishNotReadyAddresses', ask: `peer-0.peers.${ns} A`, answer: ['5 A 10.244.3.1'] },
  { what: 'a host name with another type', ask: `10-244-2-6.db.${ns} AAAA`, authority: [SOA] },
  {
    what: 'host names belong to headless Services',
    ask: `db-0.web.${ns} A`,
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  {
    what: 'SRV of a headless Service: one per endpoint',
    ask: `_sql._tcp.db.${ns} SRV`,
    answer: [
      `5 SRV 0 33 5432 db-0.db.${ns}`,
      `5 SRV 0 33 5432 10-244-2-6.db.${ns}`,
      `5 SRV 0 33 5432 fd00-244--6.db.${ns}`,
    ],
    additional: [
      `db-0.db.${ns} 5 A 10.244.1.5`,
      `10-244-2-6.db.${ns} 5 A 10.244.2.6`,
      `db-0.db.${ns} 5 AAAA fd00:244::5`,
      `fd00-244--6.db.${ns} 5 AAAA fd00:244::6`,
    ],
  },
  { what: 'ExternalName asked for CNAME', ask: `mirror.${ns} CNAME`, answer: ['5 CNAME www.example.com'] },
  {
    what: 'ExternalName resolved through the forwarder',
    ask: `mirror.${ns} A`,
    answer: ['5 CNAME www.example.com', 'www.example.com 300 A 192.0.2.80'],
  },
  {
    what: 'ExternalName whose target has no such type',
    ask: `mirror.${ns} AAAA`,
    answer: ['5 CNAME www.example.com'],
    authority: ['example.com 60 SOA ns.example.com admin.example.com'],
  },
  {
    what: 'ExternalName with a target in the cluster',
    ask: `alias.${ns} A`,
    answer: [`5 CNAME web.${ns}`, `web.${ns} 5 A 10.96.0.1`],
  },
  {
    what: 'PTR of a cluster IP',
    ask: '1.0.96.10.in-addr.arpa PTR',
    answer: [`5 PTR web.${ns}`],
  },
  {
    what: 'PTR of a cluster IP, IPv6',
    ask: `1.${'0.'.repeat(23)}6.9.0.0.0.0.d.f.ip6.arpa PTR`,
    answer: [`5 PTR web.${ns}`],
  },
  { what: 'PTR of an endpoint', ask: '5.1.244.10.in-addr.arpa PTR', answer: [`5 PTR db-0.db.${ns}`] },
  {
    what: 'PTR without host name',
    ask: '6.2.244.10.in-addr.arpa PTR',
    answer: [`5 PTR 10-244-2-6.db.${ns}`],
  },
  {
    what: 'PTR of an endpoint that is not ready',
    ask: '7.2.244.10.in-addr.arpa PTR',
    rcode: 'NXDOMAIN',
    authority: ['244.10.in-addr.arpa 5 SOA ns.dns.cluster.local hostmaster.cluster.local'],
  },
  {
    what: 'PTR of an unused address in the service network',
    ask: '99.0.96.10.in-addr.arpa PTR',
    rcode: 'NXDOMAIN',
    authority: ['96.10.in-addr.arpa 5 SOA ns.dns.cluster.local hostmaster.cluster.local'],
  },
  {
    what: 'a reverse name with another type',
    ask: '1.0.96.10.in-addr.arpa A',
    authority: ['96.10.in-addr.arpa 5 SOA ns.dns.cluster.local hostmaster.cluster.local'],
  },
  {
    what: 'PTR outside the cluster is forwarded',
    ask: '8.8.8.8.in-addr.arpa PTR',
    answer: ['300 PTR resolver.example.com'],
  },
  { what: 'pod names: off', ask: `10-244-1-9.shop.pod.cluster.local A`, rcode: 'NXDOMAIN', authority: [SOA] },
  {
    what: 'pod names: insecure',
    pods: 'insecure',
    ask: '192-0-2-1.shop.pod.cluster.local A',
    answer: ['5 A 192.0.2.1'],
  },
  {
    what: 'pod names: insecure, IPv6',
    pods: 'insecure',
    ask: 'fd00--1.shop.pod.cluster.local AAAA',
    answer: ['5 AAAA fd00::1'],
  },
  {
    what: 'pod names: insecure, the other family',
    pods: 'insecure',
    ask: '192-0-2-1.shop.pod.cluster.local AAAA',
    authority: [SOA],
  },
  {
    what: 'pod names: not an address',
    pods: 'insecure',
    ask: '300-0-2-1.shop.pod.cluster.local A',
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  {
    what: 'pod names: verified',
    pods: 'verified',
    ask: '10-244-1-9.shop.pod.cluster.local A',
    answer: ['5 A 10.244.1.9'],
  },
  {
    what: 'pod names: verified, no pod has the address',
    pods: 'verified',
    ask: '10-244-1-8.shop.pod.cluster.local A',
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  {
    what: 'pod names: verified, another namespace',
    pods: 'verified',
    ask: '10-244-1-9.other.pod.cluster.local A',
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  { what: 'the zone itself: SOA', ask: 'cluster.local SOA', answer: [SOA] },
  {
    what: 'the zone itself: NS',
    ask: 'cluster.local NS',
    answer: ['5 NS ns.dns.cluster.local'],
    additional: ['ns.dns.cluster.local 5 A 10.96.0.10', 'ns.dns.cluster.local 5 AAAA fd00:96::a'],
  },
  { what: 'its name server', ask: 'ns.dns.cluster.local A', answer: ['5 A 10.96.0.10'] },
  { what: 'an unknown Service', ask: `nothing.${ns} A`, rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'an unknown namespace', ask: 'web.other.svc.cluster.local A', rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'a known namespace', ask: `${ns} A`, authority: [SOA] },
  { what: 'a namespace without Services', ask: 'empty.svc.cluster.local A', authority: [SOA] },
  {
    what: 'an unknown Service of a namespace without Services',
    ask: 'web.empty.svc.cluster.local A',
    rcode: 'NXDOMAIN',
    authority: [SOA],
  },
  { what: 'svc itself', ask: 'svc.cluster.local A', authority: [SOA] },
  { what: 'anything else below the zone', ask: 'www.cluster.local A', rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'names too deep', ask: `a.b.c.web.${ns} A`, rcode: 'NXDOMAIN', authority: [SOA] },
  { what: 'a name that only ends alike is foreign', ask: 'notcluster.local A', rcode: 'REFUSED' },
  { what: 'names outside are forwarded', ask: 'www.example.com A', answer: ['300 A 192.0.2.80'] },
  {
    what: 'denials of upstreams are passed on',
    ask: 'none.example.com A',
    rcode: 'NXDOMAIN',
    authority: ['example.com 60 SOA ns.example.com admin.example.com'],
  },
  { what: 'ANY is not expanded', ask: `web.${ns} ANY`, answer: ['8482 HINFO 075246433834383200'] },
  { what: 'zone transfer is refused', ask: 'cluster.local AXFR', rcode: 'REFUSED' },
];

const EXAMPLE_SOA = {
  name: 'example.com',
  type: TYPE.SOA,
  class: CLASS_IN,
  ttl: 60,
  data: {
    primary: 'ns.example.com',
    mailbox: 'admin.example.com',
    serial: 1,
    refresh: 1,
    retry: 1,
    expire: 1,
    minimum: 60,
  },
};

let upstream: FakeUpstream;
let forwarder: Forwarder;
const servers = new Map<PodMode, DnsServer>();
const registry = new Registry();
let zone: Zone;

before(async () => {
  upstream = await startUpstream(({ question }) => {
    const record = { name: question.name, class: CLASS_IN, ttl: 300 };
    switch (`${question.name.toLowerCase()} ${question.type}`) {
      case `www.example.com ${TYPE.A}`:
        return {
          ...emptyAnswer(0),
          answers: [{ ...record, type: TYPE.A, data: Uint8Array.of(192, 0, 2, 80) }],
        };
      case `8.8.8.8.in-addr.arpa ${TYPE.PTR}`:
        return {
          ...emptyAnswer(0),
          answers: [{ ...record, type: TYPE.PTR, data: { target: 'resolver.example.com' } }],
        };
      case `www.example.com ${TYPE.AAAA}`:
        return { ...emptyAnswer(0), authorities: [EXAMPLE_SOA] };
      case `none.example.com ${TYPE.A}`:
        return { ...emptyAnswer(RCODE.NXDOMAIN), authorities: [EXAMPLE_SOA] };
      default:
        return emptyAnswer(RCODE.REFUSED);
    }
  });
  const metrics = createDnsMetrics(registry);
  // Cached answers keep their age between transports.
  forwarder = createForwarder({ upstreams: [upstream.address], metrics, clock: manualClock() });
  for (const podMode of ['disabled', 'insecure', 'verified'] as const) {
    const shop = shopZone({ podMode });
    if (podMode === 'disabled') zone = shop;
    const server = await startDnsServer({
      listeners: [{ address: '127.0.0.1', port: 0 }],
      zone: shop,
      forwarder,
      logger: silentLogger,
      metrics,
    });
    servers.set(podMode, server);
  }
});

after(async () => {
  for (const server of servers.values()) await server.close();
  forwarder.close();
  await upstream.close();
});

function serverOf(mode: PodMode = 'disabled') {
  const address = servers.get(mode)?.addresses[0];
  assert.ok(address);
  return address;
}

for (const transport of ['udp', 'tcp'] as const) {
  describe(`every row, over ${transport}`, () => {
    for (const row of ROWS) {
      test(`${row.what}: ${row.ask}`, async () => {
        const message = await ask(serverOf(row.pods), transport, row.ask, {
          udpSize: 4096,
          version: 0,
          dnssecOk: false,
        });
        const name = row.ask.split(' ')[0] ?? '';
        const full = (text: string) => (/^[0-9]+ [A-Z]/.test(text) ? `${name} ${text}` : text);
        assert.equal(message.rcode, RCODE[row.rcode ?? 'NOERROR']);
        assert.equal(message.questions[0]?.name, name, 'the question comes back as asked');
        assert.deepEqual(message.answers.map(recordText), (row.answer ?? []).map(full));
        assert.deepEqual(message.authorities.map(recordText), row.authority ?? []);
        assert.deepEqual(message.additionals.map(recordText), row.additional ?? []);
      });
    }
  });
}

for (const [tool, args] of [
  ['dig', ['+noall', '+comments', '+answer', '+tries=1', '+time=5']],
  ['kdig', ['+noall', '+header', '+answer', '+retry=0', '+time=5']],
] as const) {
  const installed = existsSync(`/usr/bin/${tool}`);
  test(`${tool} parses every answer identically`, {
    skip: installed ? false : `${tool} is not installed`,
  }, async () => {
    const run = promisify(execFile);
    for (const transport of ['+notcp', '+tcp']) {
      for (const row of ROWS.filter((r) => !r.ask.endsWith('AXFR') && !r.ask.endsWith('ANY'))) {
        const [name = '', type = ''] = row.ask.split(' ');
        const { address, port } = serverOf(row.pods);
        const { stdout } = await run(tool, [
          `@${address}`,
          '-p',
          String(port),
          transport,
          ...args,
          name,
          type,
        ]);
        const status = /status: ([A-Z]+)/.exec(stdout)?.[1];
        assert.equal(status, row.rcode ?? 'NOERROR', `${row.ask}\n${stdout}`);
        const answers = stdout.split('\n').filter((line) => line !== '' && !line.startsWith(';'));
        assert.equal(answers.length, row.answer?.length ?? 0, stdout);
        assert.doesNotMatch(stdout, /malformed|extra bytes|WARNING: (?!.local)/i);
        for (const [i, line] of answers.entries()) {
          const data = line.split(/\s+/).slice(3).join(' ').replace(/\.$/, '');
          assert.ok(
            row.answer?.[i]?.includes(data.replace(/(SOA \S+)\. (\S+)\..*/, '$1 $2')),
            `${line}: ${row.answer?.[i]}`,
          );
        }
      }
    }
  });
}

test('resolution of an ExternalName loop ends', async () => {
  const message = await ask(serverOf(), 'udp', `loop.${ns} A`);
  assert.equal(message.rcode, RCODE.NOERROR);
  assert.ok(message.answers.length > 0 && message.answers.length < 20);
});

test('the next answer reflects a change', async () => {
  zone.setService(service('fresh', { clusterIP: '10.96.7.7' }));
  assert.deepEqual((await ask(serverOf(), 'udp', `fresh.${ns} A`)).answers.map(recordText), [
    `fresh.${ns} 5 A 10.96.7.7`,
  ]);
  zone.setService(service('fresh', { clusterIP: '10.96.7.8' }));
  assert.deepEqual((await ask(serverOf(), 'udp', `fresh.${ns} A`)).answers.map(recordText), [
    `fresh.${ns} 5 A 10.96.7.8`,
  ]);
  assert.equal((await ask(serverOf(), 'udp', '7.7.96.10.in-addr.arpa PTR')).rcode, RCODE.NXDOMAIN);
  zone.deleteService('shop', 'fresh');
  assert.equal((await ask(serverOf(), 'udp', `fresh.${ns} A`)).rcode, RCODE.NXDOMAIN);
});

test('cluster names are SERVFAIL until the first full list, other names resolve', async () => {
  zone.setSynced(false);
  try {
    for (const question of [`web.${ns} A`, `nothing.${ns} A`, '99.0.96.10.in-addr.arpa PTR']) {
      const message = await ask(serverOf(), 'udp', question);
      assert.equal(message.rcode, RCODE.SERVFAIL, question);
      assert.deepEqual(message.authorities, []);
    }
    assert.equal((await ask(serverOf(), 'udp', 'www.example.com A')).rcode, RCODE.NOERROR);
  } finally {
    zone.setSynced(true);
  }
});

test("metrics have CoreDNS's names", async () => {
  await ask(serverOf(), 'udp', `web.${ns} A`);
  await ask(serverOf(), 'udp', 'www.example.com A');
  await ask(serverOf(), 'udp', 'www.example.com A');
  const text = await registry.metrics();
  for (const wanted of [
    /coredns_dns_requests_total\{server="dns:\/\/:53",zone="cluster.local.",view="",proto="udp",family="1",type="A"\} [1-9]/,
    /coredns_dns_responses_total\{.*rcode="NXDOMAIN",plugin="kubernetes"\} [1-9]/,
    /coredns_dns_request_duration_seconds_bucket\{.*zone="cluster.local."/,
    /coredns_dns_request_duration_seconds_sum\{.*zone="cluster.local.",view=""\} 0\.[0-9]+/,
    /coredns_dns_response_size_bytes_bucket\{le="\+Inf",.*proto="udp"\} [1-9]/,
    /coredns_dns_response_size_bytes_count\{.*proto="tcp"\} [1-9]/,
    /coredns_cache_hits_total\{.*type="success".*\} [1-9]/,
    /coredns_cache_entries\{.*type="denial".*\} [1-9]/,
    /coredns_proxy_request_duration_seconds_count\{.*rcode="NOERROR"\} [1-9]/,
  ]) {
    assert.match(text, wanted);
  }
});

test('malformed and random bytes over UDP and TCP stop neither the server nor other queries', async () => {
  const server = serverOf();
  const { port } = server;
  const udp = createSocket('udp4');
  udp.on('message', () => {}).on('error', () => {});
  const packets = malformedPackets(20_261_122);
  const below = seededNumbers(7);
  for (let round = 0; round < 400; round++) {
    const packet = packets();
    udp.send(packet, port, '127.0.0.1');
    // Framed, with a wrong length, or without a frame.
    const forms = [frame(packet), Buffer.concat([Buffer.of(below(256), below(256)), packet]), packet];
    const bytes = forms[below(3)] ?? packet;
    const socket = connect({ host: '127.0.0.1', port });
    socket.on('error', () => {});
    socket.resume();
    const closed = once(socket, 'close');
    if (below(8) === 0) socket.write(bytes, () => socket.resetAndDestroy());
    else socket.end(bytes);
    await closed;
  }
  await sendHostileRequests(() => connect({ host: '127.0.0.1', port }), { rounds: 50 });
  udp.close();
  for (const transport of ['udp', 'tcp'] as const)
    assert.equal((await ask(server, transport, `web.${ns} A`)).answers.length, 1, transport);
});
