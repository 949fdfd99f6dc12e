import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rewriteHtmlLinks, rewriteProxyUrl } from './html-links.ts';
import { splitSchemeNamePort } from './proxy-location.ts';

const names: readonly [text: string, expected: object | null][] = [
  ['web', { scheme: 'http', name: 'web', port: '' }],
  ['web:80', { scheme: 'http', name: 'web', port: '80' }],
  ['web:metrics', { scheme: 'http', name: 'web', port: 'metrics' }],
  ['https:web:443', { scheme: 'https', name: 'web', port: '443' }],
  ['https:web:', { scheme: 'https', name: 'web', port: '' }],
  ['ftp:web:21', null],
  ['', null],
  [':80', null],
  ['a:b:c:d', null],
];
for (const [text, expected] of names) {
  test(`the proxied name "${text}"`, () => assert.deepEqual(splitSchemeNamePort(text), expected));
}

const PREFIX = '/api/v1/namespaces/default/pods/web/proxy';
const urls: readonly [url: string, expected: string][] = [
  ['/a/b', `${PREFIX}/a/b`],
  ['/', `${PREFIX}/`],
  ['a/b', 'a/b'],
  ['#top', '#top'],
  ['http://10.0.0.1:80/x?y=z', `${PREFIX}/x?y=z`],
  ['http://api:6443/x', `${PREFIX}/x`],
  ['http://example.com/x', 'http://example.com/x'],
  [`${PREFIX}/x`, `${PREFIX}/x`],
];
for (const [url, expected] of urls) {
  test(`a proxied answer's URL ${url}`, () =>
    assert.equal(rewriteProxyUrl(url, '10.0.0.1:80', 'api:6443', PREFIX), expected));
}

test('links in HTML point through the proxy', () => {
  const html = `<html><!-- <a href="/no"> --><a class="x" href="/a">a</a><img src='/i.png'><p title="/t"><script src=/s.js></script>`;
  const changed = rewriteHtmlLinks(html, (url) => `/p${url}`);
  assert.match(changed, /<a class="x" href="\/p\/a">a<\/a><img src='\/p\/i\.png'><p title="\/t">/);
  assert.match(changed, /<script src=\/p\/s\.js>/);
});

const unusual: readonly [html: string, expected: string][] = [
  ['<a/href="/a"/>', '<a/href="/p/a"/>'],
  ["<A\n HREF = '/a' >", "<A\n HREF = '/p/a' >"],
  ['<a =href="/a" href=/b>', '<a =href="/a" href=/p/b>'],
  ['<a href="/a', '<a href="/a'],
  ['<constructor href="/a">', '<constructor href="/a">'],
  ['1 < 2 <a title="<a href=/x>" href="/a">', '1 < 2 <a title="<a href=/x>" href="/p/a">'],
];
for (const [html, expected] of unusual) {
  test(`links in ${html}`, () =>
    assert.equal(
      rewriteHtmlLinks(html, (url) => `/p${url}`),
      expected,
    ));
}

test('HTML that a pod has written to be slow is read once', () => {
  for (const unit of ['<a ', '<a b=', '<a b="', '<a b', ' ', '<a x=y ', '<', '/', '=']) {
    const text = `<a ${unit.repeat(1_000_000 / unit.length)}`;
    assert.equal(
      rewriteHtmlLinks(text, (url) => url),
      text,
    );
  }
});
