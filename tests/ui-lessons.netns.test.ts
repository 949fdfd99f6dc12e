import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { LessonEntry } from '../src/learn/course.ts';
import { HELLO } from './testing/cluster.ts';
import { walkLesson } from './testing/lesson-walk.ts';
import { describePage } from './testing/page-suite.ts';

describePage('lessons in the terminal and in the page', ['--nodes', '2', '-f', HELLO], (scene) => {
  // Each has objects of its own, so that they can be walked at the same time.
  test('lessons in the terminal: what they print, and nothing else, leads to their end', {
    concurrency: 3,
  }, async (t) => {
    await Promise.all(
      ['pods', 'names', 'policies'].map((lesson) =>
        t.test(lesson, async () => {
          const { log, isFinished, missing } = await walkLesson(scene.cluster, lesson);
          assert.ok(isFinished, log);
          assert.deepEqual(missing, [], log);
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
    const button = (name: string | RegExp) => scene.page.getByRole('button', { name, exact: true });
    // The commands come after the guess.
    assert.equal(await scene.page.locator('.typed').count(), 0);
    await scene.page.getByLabel('one of them').check();
    await button('Run here').click();
    await scene.page.getByText('Step 2 of 3: Look for its address').waitFor();
    await scene.page.getByText('You have seen: Each connection goes to one of the endpoints').waitFor();
    await scene.page.getByLabel('none').check();
    await button('Run here').click();
    await scene.page.getByText('✓ as expected').waitFor();
    await scene.page.getByText('✓ right').waitFor();
    await scene.page.getByText('Only rules know the address').waitFor();
    await scene.expectAccessible();
    await button('I have seen it').click();
    await scene.page.getByText('Step 3 of 3: Find the fault: connections are refused').waitFor();
    await button('Run here').click();
    await scene.page
      .getByText(/because nothing listens on port 9090\/TCP/)
      .first()
      .waitFor();
    await scene.page.getByText('How to repair it').click();
    await button('Run here').last().click();
    await scene.page.getByText('✓ You have finished this lesson.').waitFor();
    await scene.expectAccessible();
    await scene.page.getByRole('button', { name: 'Choose another' }).click();
    await scene.page.getByRole('button', { name: /A Service's address.*✓ finished/s }).waitFor();
  });

  test('the page runs commands of the lesson only, for those who have the token', async () => {
    const ask = (base: string, headers: Record<string, string>, body: object) =>
      fetch(`${base}api/lesson-command`, { method: 'POST', headers, body: JSON.stringify(body) });
    const own = { lesson: 'service', step: 3, list: 'commands', index: 0 };
    const { origin } = new URL(scene.url);
    assert.equal((await ask(`${origin}/wrong/`, {}, own)).status, 403);
    assert.equal((await ask(scene.url, { origin: 'http://attacker.example' }, own)).status, 403);
    assert.equal((await ask(scene.url, { origin: 'http://127.0.0.1:1' }, own)).status, 403);
    for (const body of [
      { ...own, command: 'id' },
      { ...own, index: 99 },
      { ...own, step: 1 },
    ])
      assert.equal((await ask(scene.url, {}, body)).status, 400);
  });

  test('learn -o json: how far each lesson is, for the table of a class', async () => {
    const { out } = await scene.cluster.fairlead('learn', '-o', 'json');
    const { cluster, lessons } = JSON.parse(out) as { cluster: string; lessons: readonly LessonEntry[] };
    assert.equal(cluster, scene.cluster.name);
    assert.deepEqual(
      lessons.filter(({ state }) => state === 'finished').map(({ name }) => name),
      ['pods', 'service', 'names', 'policies'],
    );
  });

  test('own lessons of a folder', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'lessons-'));
    try {
      const steps = [{ title: 'Look', text: ['Look.'], commands: ['kubectl -n learn get pods'] }];
      writeFileSync(
        join(folder, 'a.json'),
        JSON.stringify({ name: 'ours', title: 'Ours', summary: 's', steps }),
      );
      const listed = await scene.cluster.fairlead('learn', '--lessons', folder);
      assert.match(listed.out, /^ours +- +Ours$/m);
      const shown = await scene.cluster.fairlead('learn', 'ours', '--lessons', folder);
      assert.match(shown.out, /Ours, step 1 of 1[\s\S]*get pods/);
      writeFileSync(join(folder, 'a.json'), '{"name": "ours"}');
      const refused = await scene.cluster.fairlead('learn', '--lessons', folder);
      assert.equal(refused.status, 1);
      assert.match(refused.error, /a\.json: steps: a lesson has at least one step/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('learn --reset leaves nothing', async () => {
    const { status, error } = await scene.cluster.fairlead('learn', '--reset');
    assert.equal(status, 0, error);
    assert.equal((await scene.cluster.kubectl('get', 'namespace', 'learn')).status, 1);
    assert.match((await scene.cluster.fairlead('learn')).out, /^pods +- /m);
  });

  test('the page asks its own server only, and nothing is wrong in it', () => scene.expectSound());
});
