import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { createClient } from '../src/kube/client.ts';
import { readKubeconfig } from '../src/kube/kubeconfig.ts';
import { httpTransport } from '../src/kube/transport.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, type Load } from './testing/cluster.ts';
import { describePage } from './testing/page-suite.ts';

/** What the terminal needs is loaded with the first shell only, and has a test of its own. */
const MAX_WIRE_BYTES = 100_000;
const MANY_SERVICES = 1000;
const NAMESPACES = 20;
const CONCURRENCY = 8;
/** The page's rows and links have a limit, whatever the size of the cluster. */
const MAX_ELEMENTS = 4000;
const PATIENCE_MS = 60_000;

describePage('the map of the page', ['--nodes', '2', '-f', HELLO], (scene) => {
  let load: Load | null = null;
  after(() => load?.stop());

  test('an address without the token is refused', async () => {
    const { origin } = new URL(scene.url);
    for (const path of ['/', '/page.js', '/api/events'])
      assert.equal((await fetch(origin + path)).status, 403);
  });

  test('a quiet cluster: its Services and endpoints, and how to send requests', async () => {
    await scene.page.goto(scene.url);
    await scene.row(/^hello/).waitFor();
    assert.match(await scene.row(/^hello/).innerText(), /3\/3 ready|ready/);
    await scene.page.getByText('no connection was opened in the last 10 seconds').waitFor();
    await scene.page.getByText(/exec default\/client -- fairlead request http:\/\/hello/).waitFor();
  });

  test('requests of a pod: the client, the rate, and the verdict in words', async () => {
    load = scene.cluster.load('client', 'http://hello');
    await scene.row(/^client/).waitFor();
    await scene.page
      .locator('.edge', { hasText: /default\/client → default\/hello → hello-.*✓ delivered/s })
      .first()
      .waitFor();
    assert.match(await scene.row(/^hello/).innerText(), /\d\/s/);
    assert.ok((await scene.page.locator('path.link.good').count()) > 2);
  });

  test('refused requests: the mark, the word and the reason', async () => {
    await scene.cluster.apply(
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'typo', namespace: 'default' },
        spec: { selector: { app: 'nothing' }, ports: [{ port: 80 }] },
      }),
    );
    await scene.row(/^typo/).waitFor();
    await eventually(
      async () => {
        await scene.cluster.request('client', 'http://typo', '--count', '3');
        return await scene.page
          .locator('.edge.bad', { hasText: /default\/typo.*✕ rejected.*no.*endpoints/s })
          .count();
      },
      (count) => count > 0,
      PATIENCE_MS,
    );
    assert.ok((await scene.page.locator('path.link.bad[stroke-dasharray]').count()) > 0);
  });

  test('in a narrow window the names of failing rows are shown', async () => {
    await scene.page.setViewportSize({ width: 400, height: 800 });
    for (const name of [/^typo/, /^client/]) {
      const hidden = await scene
        .row(name)
        .locator('.label')
        .evaluate((one) => one.scrollWidth - one.clientWidth);
      assert.ok(hidden <= 0, `${name}: ${hidden} pixels are hidden`);
    }
    await scene.page.setViewportSize({ width: 1280, height: 800 });
  });

  test('a link to a view that does not exist is named', async () => {
    await scene.page.goto(`${scene.url}#nothing`);
    await scene.page.getByText('The page has no view “nothing”').waitFor();
    await scene.expectAccessible();
    await scene.page.getByRole('link', { name: 'Show the map' }).click();
    await scene.row(/^hello/).waitFor();
  });

  test('search by keyboard; the link of a view shows the same in another window', async () => {
    await scene.page.keyboard.press('/');
    await scene.page.keyboard.type('hello');
    await scene.row(/^typo/).waitFor({ state: 'detached' });
    await scene.row(/^hello/).click();
    await scene.page.getByRole('heading', { name: 'default/hello' }).waitFor();
    const other = await scene.opened.context.newPage();
    await other.goto(scene.page.url());
    await other.getByRole('heading', { name: 'default/hello' }).waitFor();
    await other.close();
    await scene.page.keyboard.press('Escape');
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`accessibility in ${colorScheme}: axe finds nothing`, async () => {
      await scene.page.goto(`${scene.url}#map`);
      await scene.row(/^hello/).waitFor();
      await scene.page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await scene.expectAccessible();
    });
  }

  test('with reduced motion nothing moves', async () => {
    await scene.page.emulateMedia({ reducedMotion: 'reduce' });
    await scene.page.reload();
    await scene.row(/^hello/).waitFor();
    assert.equal(await scene.page.locator('canvas').count(), 0);
  });

  test('1,000 Services: grouped by namespace, within a fixed number of elements; a namespace opens', async () => {
    const transport = httpTransport(readKubeconfig(scene.cluster.kubeconfig));
    const client = createClient(transport, 'ui-test');
    const createAll = async (count: number, create: (i: number) => Promise<unknown>) => {
      let next = 0;
      const work = async () => {
        while (next < count) await create(next++);
      };
      await Promise.all(Array.from({ length: CONCURRENCY }, work));
    };
    await createAll(NAMESPACES, (i) =>
      client.create(RESOURCES.namespaces, { metadata: { name: `team-${i}` } }),
    );
    await createAll(MANY_SERVICES, (i) =>
      client.create(RESOURCES.services, {
        metadata: { name: `many-${i}`, namespace: `team-${i % NAMESPACES}` },
        spec: { selector: { app: `many-${i}` }, ports: [{ port: 80 }] },
      }),
    );
    transport.close();
    await scene.page.goto(`${scene.url}#map`);
    await scene.row(/^team-7\s*50 Services/).waitFor();
    assert.ok((await scene.page.locator('*').count()) < MAX_ELEMENTS);
    await scene.row(/^team-7/).click();
    await scene.row(/^many-7/).waitFor();
    await scene.page.getByText('10 quiet Services are not shown').waitFor();
  });

  test('the page asks its own server only, and nothing is wrong in it', () => scene.expectSound());

  test('at most 100 kB over the wire without a shell', async () => {
    const { files, bytes } = await scene.opened.wireSize();
    assert.ok(files.length >= 3 && bytes <= MAX_WIRE_BYTES, `${files.join(' ')}: ${bytes} bytes`);
  });

  test('when the command ends, the page says so', async () => {
    const { command } = scene.opened;
    const ended = once(command, 'exit');
    command.kill('SIGINT');
    await scene.page.getByText('The connection to “fairlead ui” is lost').waitFor();
    assert.deepEqual(await ended, [0, null]);
  });
});
