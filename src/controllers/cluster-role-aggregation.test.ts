import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type AggregatedRole, aggregatedRules } from './cluster-role-aggregation.ts';

const rule = (resource: string) => ({ verbs: ['get'], resources: [resource] });
const role = (
  name: string,
  { to = [], from = [], rules = [] }: { to?: string[]; from?: string[]; rules?: string[] },
): AggregatedRole => ({
  metadata: { name, labels: Object.fromEntries(to.map((label) => [label, 'true'])) },
  rules: rules.map(rule),
  ...(from.length > 0
    ? {
        aggregationRule: {
          clusterRoleSelectors: from.map((label) => ({ matchLabels: { [label]: 'true' } })),
        },
      }
    : {}),
});

interface Row {
  readonly name: string;
  readonly roles: AggregatedRole[];
  /** Role → resources of its new rules. */
  readonly wanted: Record<string, string[]>;
}

const ROWS: Row[] = [
  {
    name: 'a role gets the rules of those that its selector matches',
    roles: [role('view', { from: ['to-view'] }), role('pods', { to: ['to-view'], rules: ['pods'] })],
    wanted: { view: ['pods'] },
  },
  {
    name: 'a role that has them already is not changed',
    roles: [
      role('view', { from: ['to-view'], rules: ['pods'] }),
      role('pods', { to: ['to-view'], rules: ['pods'] }),
    ],
    wanted: {},
  },
  {
    name: 'roles that select aggregated roles get all rules at once, whatever their names',
    roles: [
      role('a-admin', { from: ['to-admin'] }),
      role('b-edit', { from: ['to-edit'], to: ['to-admin'] }),
      role('c-view', { from: ['to-view'], to: ['to-edit'] }),
      role('pods', { to: ['to-view'], rules: ['pods'] }),
      role('secrets', { to: ['to-admin'], rules: ['secrets'] }),
    ],
    wanted: { 'a-admin': ['pods', 'secrets'], 'b-edit': ['pods'], 'c-view': ['pods'] },
  },
  {
    name: 'a role loses the rules of roles that it no longer selects',
    roles: [role('view', { from: ['to-view'], rules: ['pods', 'nodes'] }), role('pods', { rules: ['pods'] })],
    wanted: { view: [] },
  },
  {
    name: 'a rule that several roles have is taken once',
    roles: [
      role('view', { from: ['one', 'two'] }),
      role('a', { to: ['one'], rules: ['pods'] }),
      role('b', { to: ['two'], rules: ['pods', 'nodes'] }),
    ],
    wanted: { view: ['pods', 'nodes'] },
  },
  {
    name: 'roles that select each other, and themselves, have all rules of both',
    roles: [
      role('a', { from: ['all'], to: ['all'] }),
      role('b', { from: ['all'], to: ['all'] }),
      role('pods', { to: ['all'], rules: ['pods'] }),
    ],
    wanted: { a: ['pods'], b: ['pods'] },
  },
];

describe('aggregated ClusterRoles', () => {
  for (const { name, roles, wanted } of ROWS)
    test(name, () => {
      const result = [...aggregatedRules(roles)].map(([of, rules]) => [
        of,
        rules.flatMap((one) => (one as { resources: string[] }).resources),
      ]);
      assert.deepEqual(Object.fromEntries(result), wanted);
    });
});
