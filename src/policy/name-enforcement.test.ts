import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLearnedNames } from './learned-names.ts';
import { createNameEnforcement } from './name-enforcement.ts';
import { createPolicyTable } from './policy-table.ts';
import { namespace, pod, withLabels } from './testing/policy-objects.ts';

const ADDRESS = '198.51.100.7';

test('after a restart, an address is allowed by the rules with its name only, whose ports differ', () => {
  const policies = createPolicyTable('node-1');
  policies.setNamespace(namespace('x'));
  policies.setPod(pod({ key: 'x/a', labels: 'app=a', ips: ['10.244.1.2'] }));
  const names = 'api.example.com:443, *.example.org:5432';
  policies.setPolicy({
    metadata: { name: 'p', namespace: 'x', annotations: { 'fairlead.dev/egress-names': names } },
    spec: { podSelector: withLabels('app=a'), policyTypes: ['Egress'] },
  });
  policies.commit();
  const learned = createLearnedNames({ now: () => 0, wallClock: () => 0, isInside: () => false });
  const enforcement = createNameEnforcement({
    ...{ policies, learned, secret: 'test' },
    kept: [
      {
        ...{ pod: 'x/a', podAddresses: ['10.244.1.2'], address: ADDRESS, names: ['api.example.com'] },
        until: Date.now() + 60_000,
      },
    ],
  });
  try {
    enforcement.podsChanged(['x/a']);
    const groups = [...learned.pods()].flatMap((one) => one.groups);
    assert.deepEqual(
      groups.map(({ id, patterns }) => [patterns.join(), learned.find('x/a', id, ADDRESS)?.name ?? null]),
      [
        ['api.example.com', 'api.example.com'],
        ['*.example.org', null],
      ],
    );
  } finally {
    enforcement.close();
  }
});
