import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import type { Frontend } from '../../service/model.ts';
import { changeBetween, endpoint, frontend, serviceMap } from '../testing/service-map.ts';
import { createIptables } from './iptables.ts';

/** Tests changes of which the kernel rejects a part. */

const web = (n: number): Frontend =>
  frontend({
    kind: 'ClusterIP',
    service: `web-${n}`,
    address: `10.96.0.${n}`,
    port: 80,
    endpoints: [endpoint(`10.244.1.${n}`, 8080)],
    affinitySeconds: 60,
  });

for (const variant of ['nft', 'legacy'] as const) {
  const skip = existsSync(`/usr/sbin/iptables-${variant}`) ? false : `iptables-${variant} is not installed`;
  test(`iptables-${variant}, EBUSY: a chain and a set in use by other programs stay, everything else is programmed, and a later sync removes them`, {
    skip,
  }, async () => {
    const netns = `flt-${randomBytes(3).toString('hex')}-refusals`;
    createNetns(netns);
    const dataplane = createIptables({ families: ['ipv4'], variant, netns });
    const iptables = (...args: string[]) =>
      execFileSync('ip', ['netns', 'exec', netns, `iptables-${variant}`, '-t', 'nat', ...args]).toString();
    try {
      const before = serviceMap([web(1), web(2)]);
      await dataplane.sync(before);
      const lines = iptables('-S').split('\n');
      const translation = lines.find((line) => line.includes('--to-destination 10.244.1.2:'));
      const chain = /(KUBE-SEP-\S+)/.exec(translation ?? '')?.[1] ?? '';
      const set =
        /(KUBE-AFF-\S+)/.exec(
          lines.find((line) => line.startsWith(`-A ${chain} `) && line.includes('AFF')) ?? '',
        )?.[1] ?? '';
      iptables('-N', 'THEIRS');
      iptables('-A', 'THEIRS', '-j', chain);
      iptables('-A', 'THEIRS', '-m', 'set', '--match-set', set, 'src');

      const after = serviceMap([web(1), web(3)]);
      const report = await dataplane.apply(changeBetween(before, after), after);
      assert.ok(report.failed.some(({ key }) => key === `chain ${chain}`));
      assert.ok(report.failed.some(({ key }) => key === `ipset ${set}`));
      assert.deepEqual(await dataplane.verify(), []);
      const now = iptables('-S');
      assert.match(now, /10\.96\.0\.3/);
      assert.doesNotMatch(now, /10\.96\.0\.2\/32/);
      assert.doesNotMatch(now, new RegExp(`-A ${chain} `));

      iptables('-F', 'THEIRS');
      assert.deepEqual((await dataplane.sync(after)).failed, []);
      assert.deepEqual(await dataplane.verify(), []);
      assert.doesNotMatch(iptables('-S'), new RegExp(chain));
      await dataplane.remove();
      assert.equal(iptables('-S').includes('KUBE-'), false);
    } finally {
      await dataplane.close();
      removeNetns(netns);
    }
  });
}
