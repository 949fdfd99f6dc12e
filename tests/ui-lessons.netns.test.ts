import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO } from './testing/cluster.ts';
import { typeLines, walkLesson } from './testing/lesson-walk.ts';
import { describePage } from './testing/page-suite.ts';

describePage('lessons in the terminal and in the page', ['--nodes', '2', '-f', HELLO], (scene) => {
  // Each has objects of its own, so that they can be walked at the same time.
  test('lessons in the terminal: what they print, and nothing else, leads to their end', {
    concurrency: 3,
  }, async (t) => {
    await Promise.all(
      ['pods', 'names', 'policies'].map((lesson) =>
        t.test(lesson, async () => {
          const { log, isFinished } = await walkLesson(scene.cluster, lesson);
          assert.ok(isFinished, log);
          assert.match(log, /^ {2}because /m, 'explain names the reason of the fault');
        }),
      ),
    );
    const { out } = await scene.cluster.fairlead('learn');
    assert.match(out, /^pods +finished.*\n[\s\S]*^names +finished.*\n[\s\S]*^policies +finished/m);
  });

  test('a lesson in the page: the commands that it shows, the fault, and the end', async () => {
    await scene.page.goto(`${scene.url}#lessons`);
    await scene.page.getByRole('button', { name: "A Service's address is on no interface" }).waitFor();
    await scene.expectAccessible();
    await scene.page.getByRole('button', { name: "A Service's address is on no interface" }).click();
    await scene.page.getByText('Step 1 of 3: Create a Service').waitFor();
    await scene.expectAccessible();
    const shown = async (index: number) =>
      (await scene.page.locator('.typed pre').nth(index).textContent()) ?? '';
    await typeLines(scene.cluster, await shown(0));
    await scene.page.getByText('Step 2 of 3: Look for its address').waitFor();
    await scene.page.getByRole('button', { name: 'I have seen it' }).click();
    await scene.page.getByText('Step 3 of 3: Find the fault: connections are refused').waitFor();
    assert.match(await typeLines(scene.cluster, await shown(0)), /because nothing listens on port 9090\/TCP/);
    await scene.page.getByText('How to repair it').click();
    await typeLines(scene.cluster, await shown(1));
    await scene.page.getByText('✓ You have finished this lesson.').waitFor();
    await scene.expectAccessible();
    await scene.page.getByRole('button', { name: 'Choose another' }).click();
    await scene.page.getByRole('button', { name: /A Service's address.*✓ finished/s }).waitFor();
  });

  test('learn --reset leaves nothing', async () => {
    const { status, error } = await scene.cluster.fairlead('learn', '--reset');
    assert.equal(status, 0, error);
    assert.equal((await scene.cluster.kubectl('get', 'namespace', 'learn')).status, 1);
    assert.match((await scene.cluster.fairlead('learn')).out, /^pods +- /m);
  });

  test('the page asks its own server only, and nothing is wrong in it', () => scene.expectSound());
});
