import assert from 'node:assert/strict';
import { test } from 'node:test';
import { timestamp } from '../kube/timestamp.ts';
import type { CronJob, Job } from '../kube/types.ts';
import { reconcileCronJob } from './cron-job.ts';
import { NOW, secondsAgo } from './testing/objects.ts';

/** NOW is 12:00:00 exactly; so is the last time of the schedule. */
const cronJob = (
  spec: Partial<NonNullable<CronJob['spec']>> = {},
  status: CronJob['status'] = {},
): CronJob => ({
  metadata: { name: 'backup', namespace: 'default', uid: 'backup', creationTimestamp: secondsAgo(130) },
  spec: { schedule: '* * * * *', jobTemplate: { spec: { template: {} } }, ...spec },
  status,
});
const job = (name: string, fields: { end?: 'Complete' | 'Failed'; age?: number } = {}): Job => ({
  metadata: { name, namespace: 'default', uid: name },
  status: {
    startTime: secondsAgo(fields.age ?? 60),
    ...(fields.end === 'Complete' ? { completionTime: secondsAgo(5) } : {}),
    conditions: fields.end ? [{ type: fields.end, status: 'True' }] : [],
  },
});
const active = (...names: string[]) => ({ active: names.map((name) => ({ name, uid: name })) });

interface Row {
  readonly name: string;
  readonly cronJob: CronJob;
  readonly jobs?: readonly Job[];
  readonly creates?: boolean;
  readonly replaces?: readonly string[];
  readonly outdated?: readonly string[];
  readonly reasons?: readonly string[];
  readonly active?: readonly string[];
}
const ROWS: readonly Row[] = [
  { name: 'starts a Job at its scheduled time', cronJob: cronJob(), creates: true },
  { name: 'starts no Job while suspended', cronJob: cronJob({ suspend: true }) },
  { name: 'starts one Job for each time', cronJob: cronJob({}, { lastScheduleTime: timestamp(NOW) }) },
  { name: 'waits for the scheduled time', cronJob: cronJob({ schedule: '30 * * * *' }) },
  {
    name: 'starts no Job after the starting deadline',
    cronJob: cronJob({ schedule: '59 * * * *', startingDeadlineSeconds: 30 }),
  },
  {
    name: 'starts a second Job beside a running one by default',
    cronJob: cronJob({}, active('a')),
    jobs: [job('a')],
    creates: true,
    active: ['a'],
  },
  {
    name: 'leaves a running Job alone with Forbid',
    cronJob: cronJob({ concurrencyPolicy: 'Forbid' }, active('a')),
    jobs: [job('a')],
    reasons: ['JobAlreadyActive'],
    active: ['a'],
  },
  {
    name: 'replaces a running Job with Replace',
    cronJob: cronJob({ concurrencyPolicy: 'Replace' }, active('a')),
    jobs: [job('a')],
    creates: true,
    replaces: ['a'],
  },
  {
    name: 'reports Jobs that ended or are missing',
    cronJob: cronJob({ suspend: true }, active('a', 'b')),
    jobs: [job('a', { end: 'Complete' })],
    reasons: ['SawCompletedJob', 'MissingJob'],
  },
  {
    name: 'deletes the oldest finished Jobs',
    cronJob: cronJob({ suspend: true, successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 0 }),
    jobs: [
      job('a', { end: 'Complete', age: 1 }),
      job('b', { end: 'Complete', age: 9 }),
      job('c', { end: 'Failed' }),
      job('d'),
    ],
    outdated: ['b', 'c'],
  },
  {
    name: 'reports an unknown time zone',
    cronJob: cronJob({ timeZone: 'Nowhere/Town' }),
    reasons: ['UnknownTimeZone'],
  },
  {
    name: 'reports an invalid schedule',
    cronJob: cronJob({ schedule: 'x' }),
    reasons: ['UnparseableSchedule'],
  },
  {
    name: 'reports a schedule that never comes',
    cronJob: cronJob({ schedule: '0 0 31 2 *' }),
    reasons: ['InvalidSchedule'],
  },
  {
    name: 'warns about many missed times, and starts the last one',
    cronJob: cronJob({}, { lastScheduleTime: secondsAgo(500 * 60) }),
    reasons: ['TooManyMissedTimes'],
    creates: true,
  },
];
const names = (jobs: readonly Job[]) => jobs.map(({ metadata }) => metadata?.name);
for (const row of ROWS) {
  test(`a CronJob ${row.name}`, () => {
    const plan = reconcileCronJob({ cronJob: row.cronJob, jobs: row.jobs ?? [], now: NOW });
    assert.equal(plan.create?.metadata?.name ?? null, row.creates ? `backup-${NOW / 60_000}` : null);
    assert.deepEqual(names(plan.replace), row.replaces ?? []);
    assert.deepEqual(names(plan.outdated), row.outdated ?? []);
    assert.deepEqual(
      plan.events.map(({ reason }) => reason),
      row.reasons ?? [],
    );
    assert.deepEqual(
      (plan.status.active ?? []).map(({ name }) => name),
      row.active ?? [],
    );
  });
}

test('a CronJob checks again at its next time, computed in its time zone', () => {
  const plan = reconcileCronJob({
    cronJob: cronJob({ timeZone: 'Asia/Tokyo', schedule: '*/5 * * * *', startingDeadlineSeconds: 600 }),
    jobs: [],
    now: NOW,
  });
  assert.equal(plan.checkAgainIn, 5 * 60_000 + 100);
  const annotations = plan.create?.metadata?.annotations ?? {};
  assert.equal(annotations['batch.kubernetes.io/cronjob-scheduled-timestamp'], '2026-01-01T21:00:00+09:00');
});
