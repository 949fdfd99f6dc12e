import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, type Load } from './testing/cluster.ts';
import { typeLines } from './testing/lesson-walk.ts';
import { describePage } from './testing/page-suite.ts';

const PATIENCE_MS = 60_000;
/** A folder for pictures of the stations. */
const PICTURES = process.env['FAIRLEAD_SCREENSHOTS'];

describePage('a walk through the page', ['--nodes', '2', '-f', HELLO], (scene) => {
  const loads: Load[] = [];
  after(() => Promise.all(loads.map((load) => load.stop())));

  /** Checks the page with axe in both themes, and saves pictures if a folder is given. */
  async function station(name: string): Promise<void> {
    const { page } = scene;
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await scene.expectAccessible();
      if (PICTURES === undefined) continue;
      mkdirSync(PICTURES, { recursive: true });
      await page.screenshot({ path: join(PICTURES, `${name}-${colorScheme}.png`), fullPage: true });
    }
    await page.emulateMedia({ colorScheme: 'light' });
  }
  const tab = (name: string) => scene.page.getByRole('link', { name, exact: true }).click();

  test('the map alive under load, the path of a request, a fault seen, a lesson finished', async () => {
    const { page, cluster, row } = scene;
    const node = cluster.state().nodes[0]?.addresses[0];
    loads.push(
      cluster.load('client', 'http://hello'),
      cluster.load('outside', `http://${node}:30080`, '--rate', '40'),
    );
    await page.goto(scene.url);
    for (const client of ['client', 'outside'])
      await page
        .locator('.edge', { hasText: new RegExp(`${client} → default/hello → .*✓ delivered`, 's') })
        .first()
        .waitFor();
    assert.match(await row(/^hello/).innerText(), /\d\/s/);
    assert.ok((await page.locator('path.link.good').count()) > 2);
    const drawn = () => page.evaluate<string>(`document.querySelector('canvas').toDataURL()`);
    const before = await drawn();
    await eventually(drawn, (now) => now !== before, PATIENCE_MS);
    await station('1-map-under-load');

    await row(/^hello/).click();
    await page
      .locator('.edge', { hasText: /client → / })
      .first()
      .click();
    await page.getByText('✓ Delivered after').waitFor();
    await page.getByText(/SYN-ACK to the client, step (\d+) of \1/).waitFor();
    await page.getByRole('button', { name: 'nf_tables rules' }).click();
    await page.getByText('# nft get element ip fairlead services').waitFor();
    await station('2-path-of-a-request');

    const [pod] = await cluster.pods('app=hello');
    assert.ok(pod);
    await tab('Faults');
    const form = page.getByRole('form', { name: 'Silence a pod' });
    await form.getByLabel('Pod').selectOption(`default/${pod.name}`);
    await form.getByRole('button').click();
    await page.getByText('✕ silent').waitFor();
    await station('3a-fault-planted');
    await tab('Map');
    const failing = page.locator('.edge.bad', { hasText: pod.name });
    await failing.filter({ hasText: '… no answer' }).first().waitFor();
    // Failover deletes entries of connections early: they are not refused.
    assert.equal(await failing.filter({ hasText: 'rejected' }).count(), 0);
    await station('3b-fault-on-the-map');
    await tab('Faults');
    await page.getByRole('button', { name: 'Undo all' }).click();
    await page.getByText(`Undone: silent default/${pod.name}`).waitFor();

    await tab('Lessons');
    await page.getByRole('button', { name: "A Service's address is on no interface" }).click();
    const commands = async (index: number) =>
      (await page.locator('.typed > pre').nth(index).textContent()) ?? '';
    await page.getByText('Step 1 of 3: Create a Service').waitFor();
    await station('4a-lesson-begun');
    // The commands come after the guess.
    await page.getByLabel('one of them').check();
    await typeLines(cluster, await commands(0));
    await page.getByText('Step 2 of 3: Look for its address').waitFor();
    await page.getByLabel('none').check();
    await page.getByRole('button', { name: 'I have seen it' }).click();
    await page.getByText('Step 3 of 3: Find the fault: connections are refused').waitFor();
    assert.match(await typeLines(cluster, await commands(0)), /because nothing listens on port 9090\/TCP/);
    await page.getByText('How to repair it').click();
    await station('4b-fault-of-the-lesson');
    await typeLines(cluster, await commands(1));
    await page.getByText('✓ You have finished this lesson.').waitFor();
    await station('4c-lesson-finished');
    scene.expectSound();
  });
});
