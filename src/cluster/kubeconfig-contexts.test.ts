import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { stringify } from 'yaml';
import { findKubeconfigContext } from './kubeconfig-contexts.ts';

const folder = mkdtempSync(join(tmpdir(), 'contexts-'));
after(() => rmSync(folder, { recursive: true }));

function write(name: string, current: string | null, contexts: readonly string[]): string {
  const file = join(folder, name);
  const document = {
    ...(current === null ? {} : { 'current-context': current }),
    contexts: contexts.map((context) => ({ name: context, context: { cluster: 'c', user: 'u' } })),
  };
  writeFileSync(file, stringify(document));
  return file;
}

const prod = write('prod', 'prod', ['prod', 'spare']);
const test1 = write('test', 'test-1', ['test-1', 'prod']);
const unset = write('unset', null, ['a', 'b']);
const absent = join(folder, 'absent');

describe('the context of a command', () => {
  const rows: readonly {
    readonly name: string;
    readonly KUBECONFIG?: string;
    readonly file?: string;
    readonly context?: string;
    readonly found: { readonly file: string; readonly context: string } | null | RegExp;
  }[] = [
    { name: 'the current one of a file', file: prod, found: { file: prod, context: 'prod' } },
    { name: 'one by its name', file: prod, context: 'spare', found: { file: prod, context: 'spare' } },
    { name: 'the current one of KUBECONFIG', KUBECONFIG: prod, found: { file: prod, context: 'prod' } },
    {
      name: 'of several files, the first current one, in the first file that has it',
      KUBECONFIG: `${absent}:${unset}:${test1}:${prod}`,
      found: { file: test1, context: 'test-1' },
    },
    {
      name: 'one by its name, in a later file',
      KUBECONFIG: `${test1}:${prod}`,
      context: 'spare',
      found: { file: prod, context: 'spare' },
    },
    {
      name: '--kubeconfig before KUBECONFIG',
      KUBECONFIG: prod,
      file: test1,
      found: { file: test1, context: 'test-1' },
    },
    { name: 'none', KUBECONFIG: absent, found: null },
    { name: 'none is current', KUBECONFIG: unset, found: null },
    { name: 'a file without a current one', file: unset, found: /has no current context/ },
    { name: 'a name that is not there', KUBECONFIG: prod, context: 'prd', found: /no such context: prd/ },
    { name: 'a file that is not there', file: absent, found: /ENOENT/ },
  ];
  for (const { name, KUBECONFIG = '', file = null, context = null, found } of rows) {
    test(name, () => {
      const find = () => findKubeconfigContext({ file, context }, { KUBECONFIG, HOME: absent });
      if (found instanceof RegExp) assert.throws(find, found);
      else assert.deepEqual(find(), found);
    });
  }
});
