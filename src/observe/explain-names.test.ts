import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { renderExplanation } from './explain-text.ts';
import type { NameLog, NameTry } from './facts.ts';
import { ask, knownFactsOf, SERVICES, service, view } from './testing/explain-scene.ts';

describe('names that do not resolve', () => {
  const log = (change: Partial<NameLog>): NameLog => ({
    servers: ['10.96.0.10'],
    search: ['shop.svc.cluster.local'],
    ndots: 5,
    fromHosts: false,
    tries: [],
    addresses: [],
    ...change,
  });
  const tried = (result: string, change: Partial<NameTry> = {}): NameTry[] => [
    {
      name: 'web.shop.svc.cluster.local',
      server: '10.96.0.10',
      result,
      aliases: [],
      addresses: [],
      ...change,
    },
  ];
  const dns = service('kube-dns', '10.96.0.10');
  const calm = service('calm', 'None');
  const services = [...SERVICES, calm, { ...dns, metadata: { namespace: 'kube-system', name: 'kube-dns' } }];
  const nameRows: [what: string, name: string, log: NameLog, ...says: RegExp[]][] = [
    [
      'asked of other name servers',
      'web',
      log({ servers: ['192.0.2.53'], tries: tried('NXDOMAIN', { server: '192.0.2.53' }) }),
      /resolved by 192\.0\.2\.53, not by the cluster's DNS: NXDOMAIN \(dnsPolicy/,
      /set dnsPolicy: ClusterFirst/,
    ],
    ['no name server', 'web', log({ servers: [] }), /resolved by no name server/],
    [
      'an alias that leads nowhere',
      'away',
      log({ tries: tried('SERVFAIL', { aliases: ['www.example.com'] }) }),
      /alias of www\.example\.com, which does not resolve: SERVFAIL from 10\.96\.0\.10/,
    ],
    [
      'a name server that does not answer',
      'web',
      log({ tries: tried('no answer') }),
      /no name server answers: 10\.96\.0\.10 \(no answer\)/,
    ],
    ['a typing error', 'wbe', log({ tries: tried('NXDOMAIN') }), /did you mean web\?/],
    ['the name of a pod', 'far-1', log({ tries: tried('NXDOMAIN') }), /far-1 is a pod/, /pod\/shop\/far-1/],
    [
      'a dot at the end',
      'web.',
      log({ tries: tried('SERVFAIL', { name: 'web' }) }),
      /the dot at the end of web\. makes it a full name/,
      /fix use web$/m,
    ],
    [
      'a resolver without a search path',
      'web',
      log({ search: [], tries: tried('SERVFAIL', { name: 'web' }) }),
      /search path of pod shop\/client-1 \(empty\) does not lead from web to web\.shop\.svc/,
      /web\.shop\.svc\.cluster\.local/,
    ],
    [
      'a headless Service without ready pods',
      'calm',
      log({ tries: tried('NXDOMAIN', { name: 'calm.shop.svc.cluster.local' }) }),
      /headless Service without endpoints/,
    ],
    [
      'a host name that no endpoint of a headless Service has',
      'calm-7.calm',
      log({ tries: tried('NXDOMAIN', { name: 'calm-7.calm.shop.svc.cluster.local' }) }),
      /Service shop\/calm has no ready endpoint with the host name calm-7/,
    ],
    [
      'a Service that the name server does not know yet',
      'web',
      log({ tries: tried('NXDOMAIN') }),
      /the name server 10\.96\.0\.10 does not know web\.shop\.svc/,
    ],
    [
      'another domain than that of the cluster',
      'web.shop.svc.cluster.locl',
      log({ tries: tried('SERVFAIL', { name: 'web.shop.svc.cluster.locl' }) }),
      /cluster\.locl is not the domain of the cluster/,
      /fix use web\.shop\.svc$/m,
    ],
    ['no address of the family', 'web', log({ tries: tried('NOERROR') }), /spec\.ipFamilies/],
  ];
  for (const [what, name, answer, ...says] of nameRows) {
    test(what, () => {
      const facts = knownFactsOf({}, { names: () => answer });
      const explanation = ask(view({ facts, services: () => services }), 'shop/client-1', `${name}:80`);
      assert.equal(explanation.verdict, 'unresolved');
      for (const pattern of says) assert.match(renderExplanation(explanation), pattern);
    });
  }

  const externalRows: [what: string, name: string, isClosed: boolean, says: RegExp][] = [
    [
      'an external name without a way out',
      'api.example.com',
      true,
      /no route out of the cluster[\s\S]*--egress/,
    ],
    [
      'an external name with a way out',
      'api.example.com',
      false,
      /no other name server knows api\.example\.com/,
    ],
    ['a Service of a namespace that exists', 'nothing.shop', true, /there is no Service shop\/nothing/],
    ['a name of one label', 'nothing', true, /there is no Service shop\/nothing/],
    ['a typing error of two labels', 'wbe.shp', true, /did you mean web\?/],
  ];
  for (const [what, name, isClosed, says] of externalRows) {
    test(what, () => {
      const facts = knownFactsOf({}, { names: () => log({ tries: tried('NXDOMAIN') }) });
      const route: typeof facts.route = (...of) => (isClosed ? null : facts.route(...of));
      const scene = view({ facts: { ...facts, route }, services: () => services });
      assert.match(renderExplanation(ask(scene, 'shop/client-1', `${name}:80`)), says);
    });
  }
});
