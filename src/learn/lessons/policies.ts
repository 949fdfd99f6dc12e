import { RESOURCES } from '../../kube/types.ts';
import { all, explainedAs, policyExists, reaches } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { echoDeployment, echoService } from '../objects.ts';

const policy = (name: string, ...spec: readonly string[]): string =>
  [
    'kubectl apply -f - <<EOF',
    'apiVersion: networking.k8s.io/v1',
    'kind: NetworkPolicy',
    `metadata: {name: ${name}, namespace: learn}`,
    'spec:',
    '  podSelector: {matchLabels: {app: safe}}',
    ...spec.map((line) => `  ${line}`),
    'EOF',
  ].join('\n');

const ALLOW_CLIENT = policy(
  'allow-client',
  'ingress:',
  '- from: [{podSelector: {matchLabels: {app: client}}}]',
  '  ports: [{port: 8080}]',
);

export const policies: Lesson = {
  name: 'policies',
  title: 'Network policies',
  summary: 'who may connect to whom, and which rule denies it',
  prepare: [echoDeployment('safe', 2), echoService('safe')],
  steps: [
    {
      title: 'Deny everything',
      text: [
        'Without a policy, every pod reaches every other. A NetworkPolicy selects pods and isolates them: what no rule allows is dropped. This one has no rule, so that no packet reaches the pods of "safe". The Service does not matter: policies see the addresses and ports of pods.',
      ],
      commands: [
        policy('deny-all', 'policyTypes: [Ingress]'),
        'fairlead explain learn/client svc/learn/safe:80',
      ],
      predict: {
        question: 'Which packets does a policy without a rule allow to the pods that it selects?',
        choices: ['all', 'none'],
        answer: 1,
        why: 'A policy isolates the pods that it selects; what no rule allows is dropped.',
      },
      expected: ['networkpolicy.networking.k8s.io/deny-all created', 'DROPPED…'],
      check: all(
        policyExists('deny-all'),
        explainedAs({ from: 'learn/client', to: 'svc/learn/safe:80' }, 'dropped'),
      ),
    },
    {
      title: 'Allow one client',
      text: [
        'Policies add up: a packet passes if a rule of any of them allows it. Allow pods with the label app=client, on the port of the pods, not that of the Service.',
      ],
      commands: [
        ALLOW_CLIENT,
        'fairlead explain learn/client svc/learn/safe:80',
        'fairlead explain --who-can learn/{pod safe}:8080',
      ],
      predict: {
        question: 'Which port does the rule have to name?',
        choices: ['80, that of the Service', '8080, that of the pods'],
        answer: 1,
        why: 'Policies see packets after the Service was replaced by a pod.',
      },
      expected: ['networkpolicy.networking.k8s.io/allow-client created', 'DELIVERED…'],
      check: all(policyExists('allow-client'), reaches('learn/client', 'svc/learn/safe:80')),
    },
    {
      title: 'Find the fault: the client is locked out',
      text: [
        'A policy has been edited, and the client no longer gets an answer. Explain names the policies that isolate the pod; flows shows the same for real packets. Repair the rule without opening the pods to all.',
      ],
      commands: [
        'fairlead explain learn/client svc/learn/safe:80',
        'fairlead trace learn/client svc/learn/safe:80',
      ],
      prepare: [
        {
          kind: 'patch',
          resource: RESOURCES.networkPolicies,
          name: 'allow-client',
          patch: {
            spec: {
              ingress: [
                { from: [{ podSelector: { matchLabels: { app: 'cleint' } } }], ports: [{ port: 8080 }] },
              ],
            },
          },
        },
      ],
      check: all(policyExists('deny-all'), reaches('learn/client', 'svc/learn/safe:80')),
      repair: {
        text: 'The rule allows pods with the label app=cleint, which no pod has.',
        commands: [ALLOW_CLIENT],
      },
    },
  ],
};
