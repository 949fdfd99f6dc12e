import assert from 'node:assert/strict';
import { test } from 'node:test';
import { environmentProxy, readProxyVariables } from './proxy-environment.ts';
import { proxyOf } from './proxy-tunnel.ts';

const PROXY = 'http://proxy:3128';

/** NO_PROXY, and servers with and without a proxy; as golang.org/x/net/http/httpproxy, which client-go uses. */
const EXEMPT: readonly { none: string; passes: readonly string[]; direct: readonly string[] }[] = [
  {
    none: '',
    passes: ['https://api:6443', 'https://10.0.0.1', 'https://[fd00::1]:6443', 'https://localhosts'],
    direct: ['https://localhost:6443', 'https://127.0.0.1:6443', 'https://127.8.8.8', 'https://[::1]:6443'],
  },
  { none: '*', passes: [], direct: ['https://api', 'https://10.0.0.1'] },
  { none: '10.0.0.0/8', passes: ['https://11.0.0.1', 'https://api'], direct: ['https://10.96.0.1:443'] },
  { none: 'fd00::/64', passes: ['https://[fd01::1]'], direct: ['https://[fd00::1]:6443'] },
  { none: '10.0.0.1', passes: ['https://10.0.0.2'], direct: ['https://10.0.0.1:6443'] },
  { none: '10.0.0.1:6443', passes: ['https://10.0.0.1'], direct: ['https://10.0.0.1:6443'] },
  { none: '[fd00::1]:443', passes: ['https://[fd00::1]:6443'], direct: ['https://[fd00::1]'] },
  {
    none: 'example.com',
    passes: ['https://notexample.com', 'https://example.org'],
    direct: ['https://example.com', 'https://api.Example.com:6443'],
  },
  { none: '.example.com', passes: ['https://example.com'], direct: ['https://api.example.com'] },
  { none: '*.example.com', passes: ['https://example.com'], direct: ['https://api.example.com'] },
  { none: 'example.com:443', passes: ['https://example.com:6443'], direct: ['https://example.com'] },
  { none: ' a , ,B ', passes: ['https://c'], direct: ['https://a', 'https://b'] },
];

for (const { none, passes, direct } of EXEMPT) {
  test(`NO_PROXY=${none}`, () => {
    const of = (url: string) => environmentProxy({ https: PROXY, http: '', none }, new URL(url));
    for (const url of passes) assert.equal(of(url), PROXY, url);
    for (const url of direct) assert.equal(of(url), null, url);
  });
}

const VARIABLES: readonly { env: NodeJS.ProcessEnv; server: string; wanted: string | null | RegExp }[] = [
  { env: {}, server: 'https://api', wanted: null },
  { env: { NO_PROXY: 'api' }, server: 'https://api', wanted: null },
  { env: { HTTPS_PROXY: PROXY }, server: 'https://api', wanted: PROXY },
  { env: { HTTPS_PROXY: PROXY }, server: 'http://api', wanted: null },
  { env: { HTTP_PROXY: PROXY }, server: 'http://api', wanted: PROXY },
  { env: { HTTP_PROXY: PROXY }, server: 'https://api', wanted: null },
  { env: { https_proxy: PROXY, no_proxy: 'other' }, server: 'https://api', wanted: PROXY },
  { env: { HTTPS_PROXY: 'http://a', https_proxy: 'http://b' }, server: 'https://api', wanted: 'http://a' },
  { env: { HTTPS_PROXY: 'proxy.example:3128' }, server: 'https://api', wanted: 'http://proxy.example:3128' },
  { env: { HTTPS_PROXY: 'socks5://p:1080' }, server: 'https://api', wanted: 'socks5://p:1080' },
  {
    env: { HTTPS_PROXY: 'ftp://p' },
    server: 'https://api',
    wanted: /HTTPS_PROXY: ftp proxies are not supported/,
  },
  { env: { HTTPS_PROXY: 'ftp://p', NO_PROXY: 'api' }, server: 'https://api', wanted: null },
];

for (const { env, server, wanted } of VARIABLES) {
  test(`${JSON.stringify(env)}: ${server} through ${wanted}`, () => {
    const variables = readProxyVariables(env);
    const of = () => proxyOf(variables === null ? {} : { proxyVariables: variables }, new URL(server));
    if (wanted instanceof RegExp) assert.throws(of, wanted);
    else assert.equal(of(), wanted);
  });
}

test('proxy-url of the kubeconfig comes before the environment, also before NO_PROXY', () => {
  const proxyVariables = { https: PROXY, http: '', none: '*' };
  assert.equal(proxyOf({ proxyUrl: 'http://own', proxyVariables }, new URL('https://api')), 'http://own');
});
