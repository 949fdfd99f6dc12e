import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { goldenServices } from '../dataplane/testing/golden-services.ts';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { renderKubeProxyRules } from './kube-proxy-rules.ts';

const netns = `flt-${randomBytes(3).toString('hex')}-kp`;
const run = (input: string, ...words: readonly string[]): string =>
  execFileSync('ip', ['netns', 'exec', netns, ...words], { encoding: 'utf8', input });

before(() => createNetns(netns));
after(() => removeNetns(netns));

/** Versions of iptables differ in when they quote a comment. */
const plain = (line: string): string => line.replaceAll('"', '');

test("kube-proxy's rules, as rendered, are rules that iptables accepts and lists with the same text", () => {
  const map = goldenServices();
  const sections = renderKubeProxyRules({
    ...{ map, node: map.node, listenerOf: () => null },
    frontends: [...map.frontends.values()],
  });
  for (const table of ['nat', 'filter']) {
    const lines = sections
      .filter(({ command }) => command === `iptables-save -t ${table}`)
      .flatMap((section) => section.lines);
    const chains = new Set(lines.flatMap((line) => line.match(/KUBE-[A-Z0-9-]+(?=( |$))/g) ?? []));
    const declared = [...chains].map((name) => `:${name} - [0:0]`);
    run(`*${table}\n${[...declared, ...lines].join('\n')}\nCOMMIT\n`, 'iptables-restore');
    const listed = run('', 'iptables-save', '-t', table)
      .split('\n')
      .filter((line) => line.startsWith('-A'));
    assert.deepEqual(listed.map(plain).sort(), lines.map(plain).sort());
  }
});
