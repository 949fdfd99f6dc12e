import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { ModeComparison } from '../src/modes/comparison.ts';
import { HELLO, type Load, runFairlead } from './testing/cluster.ts';
import { describePage } from './testing/page-suite.ts';

describePage(
  'a Service in all modes, in the page and in the terminal',
  ['--nodes', '2', '-f', HELLO],
  (scene) => {
    let load: Load | null = null;
    after(() => load?.stop());
    const column = (mode: string) => scene.page.getByRole('region', { name: `${mode} mode` });
    /** What each mode has for the Service hello, as its own tools print it. */
    const MODE_OBJECTS = [
      ['nftables', /nft list map ip fairlead services .*\. tcp \. 80 comment "default\/hello:http" : goto/s],
      ['ebpf', /bpftool map dump name fl_frontends .*:80\/TCP: pods 3 slots, node 3 slots/s],
      ['iptables', /iptables-save -t nat/],
      ['ipvs', /ipvsadm-save -n virtual servers: 4\s*-A -t 10\.96\.[\d.]+:80 -s rr/],
      ['userspace', /tcp [\d.]+:PORT of pool default\/hello:http/],
    ] as const;

    test('one Service in all modes, side by side, without a switch', async () => {
      await scene.page.goto(`${scene.url}#modes?service=default%2Fhello`);
      for (const [mode, objects] of MODE_OBJECTS) {
        await column(mode).getByText('First packet').waitFor();
        assert.match(await column(mode).innerText(), objects, mode);
      }
      await column('nftables').getByText('✓ in use').waitFor();
      await column('nftables').getByText('✓ matches the kernel').waitFor();
      await column('userspace').getByText('What this mode would write').waitFor();
      const theirs = column('iptables').getByRole('region', { name: 'kube-proxy would write' });
      assert.match(await theirs.innerText(), /kube-proxy would write \d+ rules/);
      await theirs.locator('summary').first().click();
      assert.match(await theirs.innerText(), /-A KUBE-SERVICES -d 10\.96\.[\d.]+\/32 .* -j KUBE-SVC-/);
      if (!existsSync('/proc/net/ip_vs'))
        await column('ipvs').getByText('Not available on this node').waitFor();
      await scene.expectAccessible();
      const shown = (await column('iptables').innerText()).match(/(?<=^rules: )\d+/m)?.[0];
      const compared = await scene.cluster.fairlead('explain', 'svc/hello', '--modes', '-o', 'json');
      const { mode, modes } = JSON.parse(compared.out) as ModeComparison;
      assert.equal(mode, 'nftables');
      const iptables = modes.find((one) => one.mode === 'iptables');
      assert.deepEqual(iptables?.counts, [{ kind: 'rules', count: Number(shown) }]);
      assert.match((await scene.cluster.fairlead('status')).out, /node-1 +nftables/);
    });

    test('a switch under traffic: the mode in use is compared with the kernel', async () => {
      load = scene.cluster.load('client', 'http://hello');
      await scene.page.getByRole('button', { name: 'Switch to userspace' }).click();
      await column('userspace').getByText('✓ in use').waitFor();
      await column('userspace').getByText('✓ matches the kernel').waitFor();
      await column('userspace')
        .getByText(/^tcp [\d.]+:\d+ of pool default\/hello:http/)
        .waitFor();
      await column('userspace').getByText("The server sees the node's address", { exact: false }).waitFor();
      await column('nftables').getByText('What this mode would write').waitFor();
      await scene.page.getByRole('button', { name: 'Switch to nftables' }).click();
      await column('nftables').getByText('✓ in use').waitFor();
      assert.match((await scene.cluster.fairlead('status')).out, /node-1 +nftables/);
      await scene.expectAccessible();
    });

    test('explain --modes asks an agent by its state folder, as on a node of a real cluster', async () => {
      const stateDir = join(scene.cluster.stateRoot, scene.cluster.name, 'nodes', 'node-2', 'state');
      const here = await runFairlead(scene.cluster.stateRoot, [
        'explain',
        'svc/hello',
        '--modes',
        '--agent',
        stateDir,
      ]);
      const there = await scene.cluster.fairlead('explain', 'svc/hello', '--modes', '--node', 'node-2');
      assert.equal(here.status, 0, here.error);
      assert.equal(here.out, there.out);
    });

    const REFUSED_COMPARISONS = [
      {
        words: ['svc/helo'],
        error: /no such Service: default\/helo\n[\s\S]*did you mean svc\/default\/hello/,
      },
      { words: ['svc/other/hello'], error: /no such Service[\s\S]*did you mean svc\/default\/hello/ },
      { words: ['svc/hello', '--node', 'node-9'], error: /no such node: node-9\n[\s\S]*node-1, node-2/ },
      { words: ['client', 'svc/hello'], error: /--modes takes one argument/ },
      {
        words: ['svc/hello', '--agent', '/nowhere'],
        error: /the agent of this machine is not running[\s\S]*stateDir/,
      },
      { words: ['svc/hello', '--agent', '/x', '--node', 'node-1'], error: /use one of --agent and --node/ },
    ];
    for (const { words, error } of REFUSED_COMPARISONS) {
      test(`explain --modes ${words.join(' ')} is refused`, async () => {
        const refused = await scene.cluster.fairlead('explain', '--modes', ...words);
        assert.notEqual(refused.status, 0);
        assert.match(refused.error, error);
      });
    }
  },
);
