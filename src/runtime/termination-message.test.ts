import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import type { Container } from '../kube/types.ts';
import { makeTerminationLog, terminationMessage } from './termination-message.ts';

const bundle = mkdtempSync(join(tmpdir(), 'flt-termination-'));
const log = join(bundle, 'log');
let file = '';
after(() => rmSync(bundle, { recursive: true, force: true }));
beforeEach(() => {
  rmSync(join(bundle, 'termination-log'), { force: true });
  file = makeTerminationLog(bundle);
  writeFileSync(log, '2026-01-01T00:00:00.000000000+00:00 stdout F from the log\n');
});

const line = (text: string) => `2026-01-01T00:00:00.000000000+00:00 stderr F ${text}\n`;

interface Row {
  readonly what: string;
  readonly write: () => void;
  readonly policy?: Container['terminationMessagePolicy'];
  readonly exitCode?: number;
  readonly message: string | RegExp;
}

const ROWS: readonly Row[] = [
  { what: 'the written text', write: () => writeFileSync(file, 'why'), message: 'why' },
  { what: 'nothing', write: () => {}, message: '' },
  {
    what: 'the last 4,096 bytes of a file of 3 GiB',
    write: () => {
      truncateSync(file, 3 * 2 ** 30);
      appendFileSync(file, 'why');
    },
    message: `${'\0'.repeat(4093)}why`,
  },
  {
    what: 'no part of a character at the limit',
    write: () => writeFileSync(file, `é${'a'.repeat(4095)}`),
    message: 'a'.repeat(4095),
  },
  {
    what: 'at most 4,096 bytes of text that is not UTF-8',
    write: () => writeFileSync(file, Buffer.alloc(4096, 0xff)),
    message: '\ufffd'.repeat(1365),
  },
  {
    what: 'the reason why a pipe is not read',
    write: () => {
      rmSync(file);
      execFileSync('mkfifo', [file]);
    },
    message: /^Error on reading termination log .* is not a regular file/,
  },
  {
    what: 'the reason why a link is not followed',
    write: () => {
      rmSync(file);
      symlinkSync('/etc/hostname', file);
    },
    message: /^Error on reading termination log .*ELOOP/,
  },
  {
    what: 'the log after a failure',
    write: () => {},
    policy: 'FallbackToLogsOnError',
    message: 'from the log\n',
  },
  {
    what: 'not the log after a success',
    write: () => {},
    policy: 'FallbackToLogsOnError',
    exitCode: 0,
    message: '',
  },
  {
    what: 'the last 80 lines of a log of 100,000',
    write: () => writeFileSync(log, line('x').repeat(100_000)),
    policy: 'FallbackToLogsOnError',
    message: 'x\n'.repeat(80),
  },
  {
    what: 'the last 2,048 bytes of long lines',
    write: () => writeFileSync(log, line('y'.repeat(3000)).repeat(1000)),
    policy: 'FallbackToLogsOnError',
    message: `${'y'.repeat(2047)}\n`,
  },
];

describe('the termination message of a run is', () => {
  for (const { what, write, policy = 'File', exitCode = 3, message } of ROWS) {
    test(what, () => {
      write();
      const container = { name: 'main', terminationMessagePolicy: policy } as Container;
      const found = terminationMessage(bundle, log, container, exitCode);
      if (typeof message === 'string') assert.equal(found, message);
      else assert.match(found, message);
    });
  }
});
