import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, view } from './testing/explain-scene.ts';

const DNS = '10.96.0.10';
const rows: [name: string, to: string, limited: string, verdict: string][] = [
  ['queries of a client above its limit are dropped', `${DNS}:53/udp`, '10.244.1.9', 'named'],
  ['those of another client are not', `${DNS}:53/udp`, '10.244.1.8', 'not named'],
  ['queries over TCP are not', `${DNS}:53/tcp`, '10.244.1.9', 'not named'],
  ['packets to other ports are not', `${DNS}:5353/udp`, '10.244.1.9', 'not named'],
  ['queries to another name server are not', '10.96.0.1:53/udp', '10.244.1.9', 'not named'],
];
for (const [name, to, limited, verdict] of rows) {
  test(name, () => {
    const isLimited = (client: string, server: string) => client === limited && server === DNS;
    const { causes } = ask(view({ isLimited }), 'shop/client-1', to);
    const text = causes.map((cause) => `${cause.text} ${cause.fix}`).join();
    assert.equal(/limit of one client.*TCP/.test(text) ? 'named' : 'not named', verdict);
  });
}
