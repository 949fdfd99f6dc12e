import { rmdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Removes a control group. Killed processes leave it shortly afterwards. */
export async function removeGroup(group: string): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      return rmdirSync(group);
    } catch (error) {
      if (tries === 100) throw error;
      await sleep(10);
    }
  }
}
