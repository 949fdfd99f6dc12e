import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AnswerHold } from '../dns/answer-hold.ts';
import { addressRecord } from '../dns/encode.ts';
import { type Answer, emptyAnswer, RCODE, TYPE } from '../dns/message.ts';
import { sourceKey } from '../kernel/datagram-server.ts';
import { manualClock } from '../lib/clock.ts';
import { createLearnedNames } from '../policy/learned-names.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { namespace, pod, withLabels } from '../policy/testing/policy-objects.ts';
import { createNameGate, holdUntilStarted } from './name-gate.ts';

const question = { name: 'api.example.com', type: TYPE.A, class: 1 };
const answer: Answer = {
  ...emptyAnswer(RCODE.NOERROR),
  answers: [addressRecord('api.example.com', Uint8Array.of(198, 51, 100, 7), 60)],
};
const free = () => {};

test('a pod of another node gets no answer for the names of its policies, and all others', () => {
  const table = createPolicyTable('node-1');
  table.setNamespace(namespace('x'));
  table.setPod(pod({ key: 'x/far', labels: 'app=a', node: 'node-2', ips: ['10.244.2.1'] }));
  table.setPod(pod({ key: 'x/free', node: 'node-2', ips: ['10.244.2.2'] }));
  const gate = createNameGate({
    node: 'node-1',
    policies: table,
    learned: createLearnedNames({ now: () => 0, wallClock: () => 0, isInside: () => false }),
    names: { isReplacing: false, write: () => assert.fail('nothing of another node is written') },
    programmed: async () => {},
    clock: manualClock(),
    onRefused: () => assert.fail('nothing is refused'),
  });
  const asked = (ip: string, name = 'API.example.com') =>
    gate.clientOf(sourceKey(ip))?.beforeAnswer({ ...question, name }, answer, free);
  assert.equal(gate.clientOf(sourceKey('10.244.2.1')), undefined, 'no policy has names');
  table.setPolicy({
    metadata: { name: 'p', namespace: 'x', annotations: { 'fairlead.dev/egress-names': 'api.example.com' } },
    spec: { podSelector: withLabels('app=a'), policyTypes: ['Egress'] },
  });
  const named = {
    ...answer,
    answers: [addressRecord('API.example.com', Uint8Array.of(198, 51, 100, 7), 60)],
  };
  assert.equal(gate.clientOf(sourceKey('10.244.2.1'))?.beforeAnswer(question, named, free), null);
  assert.equal(asked('10.244.2.1', 'www.example.com'), answer);
  assert.equal(gate.clientOf(sourceKey('10.244.2.2')), undefined);
  assert.equal(gate.clientOf(sourceKey('192.0.2.1')), undefined);
  // Labels of another node's pod change without a change of this node's rules.
  table.setPod(pod({ key: 'x/far', labels: 'app=b', node: 'node-2', ips: ['10.244.2.1'] }));
  assert.equal(gate.clientOf(sourceKey('10.244.2.1')), undefined);
});

test('answers with addresses wait until a new agent enforces the policies, for a bounded time', async () => {
  const seen: string[] = [];
  const gate: AnswerHold = {
    clientOf: () => ({
      beforeAnswer(_, one) {
        seen.push('held');
        return one;
      },
    }),
  };
  const clock = manualClock();
  const started = Promise.withResolvers<void>();
  const hold = holdUntilStarted(gate, started.promise, clock);
  const empty = emptyAnswer(RCODE.NXDOMAIN);
  assert.equal(hold.clientOf(1)?.beforeAnswer(question, empty, free), empty, 'an answer without addresses');
  const late = hold.clientOf(1)?.beforeAnswer(question, answer, free);
  assert.ok(late instanceof Promise);
  clock.advance(2000);
  assert.equal(await late, answer);
  const waiting = hold.clientOf(1)?.beforeAnswer(question, answer, free);
  assert.ok(waiting instanceof Promise);
  started.resolve();
  assert.equal(await waiting, answer);
  assert.deepEqual(seen, ['held', 'held']);
  assert.equal(hold.clientOf(1)?.beforeAnswer(question, answer, free), answer);
});
