import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import type { Client } from './client.ts';
import { shareReads } from './shared-reads.ts';
import { type KubeObject, RESOURCES } from './types.ts';

/** A server that answers when it is told to, with the number of the request. */
function slowServer() {
  const asked: string[] = [];
  const answers: ((error?: Error) => void)[] = [];
  const request = <T>(what: string, answer: (version: string) => T) => {
    const number = asked.push(what);
    return new Promise<T>((resolve, reject) => {
      answers.push((error) => (error ? reject(error) : resolve(answer(String(number)))));
    });
  };
  const client = {
    get: (_resource: unknown, name: string, namespace: string) =>
      request(`get ${namespace}/${name}`, (resourceVersion) => ({ metadata: { name, resourceVersion } })),
    list: (_resource: unknown, { namespace }: { namespace: string }) =>
      request(`list ${namespace}`, (resourceVersion) => ({ items: [{ metadata: { resourceVersion } }] })),
  } as unknown as Client;
  return {
    asked,
    reader: shareReads(client, manualClock(0)),
    async answer(error?: Error) {
      answers.shift()?.(error);
      for (let round = 0; round < 10; round++) await Promise.resolve();
    },
  };
}

const version = ({ metadata }: KubeObject) => metadata?.resourceVersion;

test('who asks while a request is open gets the result of the next one, and shares it', async () => {
  const { asked, reader, answer } = slowServer();
  const ask = () => reader.get(RESOURCES.configMaps, 'a', 'x').then(version);
  const results = [ask(), ask(), ask()];
  assert.deepEqual(asked, ['get x/a']);
  await answer();
  assert.deepEqual(asked, ['get x/a', 'get x/a']);
  await answer();
  assert.deepEqual(await Promise.all(results), ['1', '2', '2']);
  const later = ask();
  await answer();
  assert.equal(await later, '3');
});

test('objects of another name, namespace or kind are requests of their own', async () => {
  const { asked, reader } = slowServer();
  void reader.get(RESOURCES.configMaps, 'a', 'x');
  void reader.get(RESOURCES.configMaps, 'b', 'x');
  void reader.get(RESOURCES.configMaps, 'a', 'y');
  void reader.get(RESOURCES.secrets, 'a', 'x');
  void reader.listIn(RESOURCES.services, 'x');
  void reader.listIn(RESOURCES.services, 'y');
  assert.deepEqual(asked, ['get x/a', 'get x/b', 'get y/a', 'get x/a', 'list x', 'list y']);
});

test('a request that fails does not fail the next one', async () => {
  const { reader, answer } = slowServer();
  const first = reader.listIn(RESOURCES.services, 'x');
  const second = reader.listIn(RESOURCES.services, 'x');
  const failed = assert.rejects(first, /down/);
  await answer(new Error('down'));
  await failed;
  await answer();
  assert.deepEqual((await second).map(version), ['2']);
});
