import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseTarget } from './explain-target.ts';

/** Argument → kind, namespace/name, port, protocol. */
const targets: Record<string, string> = {
  'default/client': 'pod default/client - -',
  'default/client:8080': 'pod default/client 8080 -',
  'default/client:8080/udp': 'pod default/client 8080 UDP',
  'default/client/UDP': 'pod default/client - UDP',
  'default/udp': 'pod default/udp - -',
  'pod/default/client': 'pod default/client - -',
  'node/node-1': 'node node-1 - -',
  'node/node-1:30080/sctp': 'node node-1 30080 SCTP',
  outside: 'outside  - -',
  'svc/shop/web': 'service shop/web - -',
  'svc/shop/udp': 'service shop/udp - -',
  'svc/shop/web/udp': 'service shop/web - UDP',
  'svc/shop/web:http': 'service shop/web http -',
  'svc/web:80/tcp': 'service web 80 TCP',
  'pod/client': 'pod client - -',
  'po/client:81': 'pod client 81 -',
  'deploy/web': 'workload web - -',
  'deployment/shop/web:8080/udp': 'workload shop/web 8080 UDP',
  'http://web/path': 'dns web 80 TCP',
  'https://web.shop': 'dns web.shop 443 TCP',
  'http://10.96.0.1:8080/?q=a/b': 'address 10.96.0.1 8080 TCP',
  'http://[fd00::1]/': 'address fd00::1 80 TCP',
  'web.shop:80': 'dns web.shop 80 -',
  'web.shop.svc.cluster.local': 'dns web.shop.svc.cluster.local - -',
  'web.shop/udp': 'dns web.shop - UDP',
  web: 'dns web - -',
  '10.96.0.1': 'address 10.96.0.1 - -',
  '10.96.0.1:80/UDP': 'address 10.96.0.1 80 UDP',
  '10.96.0.1/udp': 'address 10.96.0.1 - UDP',
  'fd00::1': 'address fd00::1 - -',
  '[fd00::1]': 'address fd00::1 - -',
  '[FD00::1]:80/tcp': 'address fd00::1 80 TCP',
  'fd00::1/udp': 'address fd00::1 - UDP',
  '[::ffff:10.96.0.1]:80': 'address 10.96.0.1 80 -',
  'Svc/web': 'service web - -',
  'POD/Shop/web': 'pod Shop/web - -',
};
for (const [text, expected] of Object.entries(targets)) {
  test(`${text} is ${expected}`, () => {
    const { kind, namespace, name, port, protocol } = parseTarget(text);
    const full = namespace === null ? name : `${namespace}/${name}`;
    assert.equal(`${kind} ${full} ${port ?? '-'} ${protocol ?? '-'}`, expected);
  });
}

for (const text of [
  '',
  'a/b/c',
  'svc/',
  'svc/a/b/c/d',
  'default/client:0',
  'default/client:70000',
  'web:HTTP!',
  '/x',
  'fd00::1::2:80',
  'web:80/tpc',
  'http:/web',
  '10.96.0.300:80',
  '1234',
]) {
  test(`${JSON.stringify(text)} is refused with the forms that are understood`, () => {
    assert.throws(() => parseTarget(text), { code: 'bad-argument', hint: /svc\/NAME/ });
  });
}

test('a kind before a colon is taken for one before a slash', () => {
  assert.throws(() => parseTarget('svc:web'), { code: 'bad-argument', hint: 'did you mean svc/web?' });
});
