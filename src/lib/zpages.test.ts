import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zpage } from './zpages.ts';

const SOURCE = {
  version: 'v1.36.0',
  startedAt: Date.UTC(2026, 10, 6, 8, 35, 8),
  now: Date.UTC(2026, 10, 6, 9, 36, 10),
  paths: ['/statusz', '/configz', '/flagz'],
  flags: { v: '2', beside: 'false' },
};
const WARNING =
  'Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.';
const TEXT = { code: 200, type: 'text/plain; charset=utf-8' };
const object = (encoding: string, version: string, kind: 'Statusz' | 'Flagz') => ({
  code: 200,
  type: `application/${encoding};g=config.k8s.io;v=${version};as=${kind}`,
});
const REFUSED = { code: 406, type: 'application/json' };
const as = (encoding: string, version: string, kind: string) =>
  `application/${encoding};v=${version};g=config.k8s.io;as=${kind}`;

/** Answers of kube-proxy 1.36.0 to the same requests. */
const NEGOTIATED: readonly (readonly [
  'Statusz' | 'Flagz',
  string | undefined,
  { code: number; type: string },
])[] = [
  ['Statusz', undefined, TEXT],
  ['Flagz', '', TEXT],
  ['Statusz', '*/*', TEXT],
  ['Statusz', 'text/*', TEXT],
  ['Flagz', 'application/json, text/plain', TEXT],
  ['Statusz', 'application/json', REFUSED],
  ['Statusz', 'text/html', REFUSED],
  ['Statusz', as('json', 'v1beta1', 'Statusz'), object('json', 'v1beta1', 'Statusz')],
  ['Statusz', as('json', 'v1alpha1', 'Statusz'), object('json', 'v1alpha1', 'Statusz')],
  ['Flagz', as('json', 'v1beta1', 'Flagz'), object('json', 'v1beta1', 'Flagz')],
  ['Statusz', as('yaml', 'v1beta1', 'Statusz'), object('yaml', 'v1beta1', 'Statusz')],
  ['Statusz', as('json', 'v1', 'Statusz'), REFUSED],
  ['Statusz', as('cbor', 'v1beta1', 'Statusz'), REFUSED],
  ['Flagz', as('json', 'v1beta1', 'Statusz'), REFUSED],
];

for (const [kind, accept, wanted] of NEGOTIATED) {
  test(`${kind} with Accept: ${accept}: ${wanted.code} ${wanted.type}`, async () => {
    const { code, type } = await zpage(kind, SOURCE, accept);
    assert.deepEqual({ code, type }, { code: wanted.code, type: wanted.type });
  });
}

/** Bodies of kube-proxy 1.36.0, with our name and runtime. */
const BODIES: readonly (readonly ['Statusz' | 'Flagz', string | undefined, string])[] = [
  [
    'Statusz',
    undefined,
    `\nfairlead statusz\n${WARNING}\n\nStarted  Fri Nov  6 08:35:08 UTC 2026\nUp  1 hr 01 min 02 sec\nNode.js version  ${process.version}\nBinary version  1.36.0\nEmulation version  1.36\nPaths  /configz /flagz\n`,
  ],
  ['Flagz', undefined, `\nfairlead flagz\n${WARNING}\nbeside false\nv 2\n`],
  [
    'Statusz',
    as('json', 'v1beta1', 'Statusz'),
    `${JSON.stringify(
      {
        kind: 'Statusz',
        apiVersion: 'config.k8s.io/v1beta1',
        metadata: { name: 'fairlead' },
        startTime: '2026-11-06T08:35:08Z',
        uptimeSeconds: 3662,
        goVersion: `Node.js ${process.version}`,
        binaryVersion: '1.36.0',
        emulationVersion: '1.36',
        paths: ['/configz', '/flagz'],
      },
      null,
      2,
    )}\n`,
  ],
  [
    'Flagz',
    as('yaml', 'v1alpha1', 'Flagz'),
    'apiVersion: config.k8s.io/v1alpha1\nflags:\n  beside: "false"\n  v: "2"\nkind: Flagz\nmetadata:\n  name: fairlead\n',
  ],
];

for (const [kind, accept, wanted] of BODIES) {
  test(`the body of ${kind} with Accept: ${accept}`, async () => {
    assert.equal((await zpage(kind, SOURCE, accept)).body, wanted);
  });
}
