import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { baseObjects, pathOf } from './objects.ts';
import { type Oracle, startOracle } from './oracle.ts';
import { startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';
const ACCEPT = 'application/json;as=Table;v=v1;g=meta.k8s.io';

interface Table {
  readonly columnDefinitions?: readonly { name: string; type: string; format: string; priority: number }[];
  readonly rows?: readonly { readonly cells: readonly unknown[] }[];
}

/** Upstream writes a cell for the age of an IPAddress, but no column for it. */
const WITHOUT_AGE_COLUMN = 'IPAddress';

async function table({ sendRaw }: Oracle, path: string): Promise<Table> {
  const answer = await sendRaw('GET', path, { accept: ACCEPT });
  assert.equal(answer.status, 200, answer.body.toString());
  return JSON.parse(answer.body.toString()) as Table;
}

/** Upstream fills it by a controller, which does not run with the oracle; here the server fills it. */
const FILLED_BY_CONTROLLER = 'secret-token';

/** Ages, creation times and UIDs differ from one run to the next. */
const stable = (cells: readonly unknown[]) =>
  cells.map((cell) =>
    typeof cell === 'string'
      ? cell
          .replace(/^([0-9]+[smhd])+$|^20[0-9-]+T[0-9:]+Z$/, '<age>')
          .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/, '<uid>')
      : cell,
  );
const columnsOf = ({ columnDefinitions = [] }: Table) =>
  columnDefinitions.map(({ name, type, format, priority }) => ({ name, type, format, priority }));

test('every kind has the columns and cells that kube-apiserver prints', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const ours = await startOurServer();
  t.after(() => ours.stop());
  for (const base of baseObjects()) {
    if (base.metadata.name === FILLED_BY_CONTROLLER) continue;
    await t.test(`${base.kind} ${base.metadata.name}`, async () => {
      const path = pathOf(base);
      const own = `${path}/${encodeURIComponent(base.metadata.name)}`;
      for (const { send } of [oracle, ours]) {
        const { status, body } = await send('POST', path, base);
        assert.ok(status === 201 || status === 409, JSON.stringify(body));
      }
      const [expected, actual] = await Promise.all([table(oracle, own), table(ours, own)]);
      const count = base.kind === WITHOUT_AGE_COLUMN ? columnsOf(expected).length : undefined;
      assert.deepEqual(columnsOf(actual).slice(0, count), columnsOf(expected));
      assert.deepEqual(stable(actual.rows?.[0]?.cells ?? []), stable(expected.rows?.[0]?.cells ?? []));
      for (const { send } of [oracle, ours]) await send('DELETE', `${own}?gracePeriodSeconds=0`);
    });
  }
});
