import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { findChromium } from './browser.ts';
import { type Cluster, startCluster } from './cluster.ts';
import { type ClusterPage, openClusterPage } from './cluster-page.ts';

/** A cluster with its page in a real browser, for the tests of `describePage`. */
export interface PageScene {
  readonly cluster: Cluster;
  readonly opened: ClusterPage;
  readonly page: Page;
  /** The address of the page with its token. */
  readonly url: string;
  /** The row of the map with this text. */
  row(text: string | RegExp): Locator;
  /** Asserts that axe finds nothing in the page as it is now. */
  expectAccessible(): Promise<void>;
  /** Asserts that the page has logged nothing but these errors, and asked its own server only. */
  expectSound(expected?: RegExp): void;
}

/** Describes tests of the page in a real browser, which has no network but that of the run; `args`: of `up`. */
export function describePage(
  title: string,
  args: readonly string[],
  addTests: (scene: PageScene) => void,
): void {
  const chromium = findChromium();
  const skip = chromium === null ? 'Chromium is not installed' : false;
  describe(title, { skip }, () => {
    let cluster: Cluster | undefined;
    let opened: ClusterPage | undefined;
    const started = <T>(value: T | undefined): T => value ?? assert.fail('the page has not been opened');
    const scene: PageScene = {
      get cluster() {
        return started(cluster);
      },
      get opened() {
        return started(opened);
      },
      get page() {
        return started(opened).page;
      },
      get url() {
        return started(opened).url;
      },
      row: (text) => scene.page.locator('.row', { hasText: text }).first(),
      async expectAccessible() {
        assert.deepEqual(await scene.opened.violations(), []);
      },
      expectSound(expected) {
        assert.deepEqual(scene.opened.foreignRequests(), []);
        const unexpected = scene.opened.problems.filter((text) => expected?.test(text) !== true);
        assert.deepEqual(unexpected, []);
      },
    };
    before(async () => {
      cluster = await startCluster(args);
      opened = await openClusterPage(cluster, chromium ?? '');
    });
    // Hooks run in this order: those of the tests come between.
    addTests(scene);
    after(async () => {
      await opened?.close();
      await cluster?.down();
    });
  });
}
