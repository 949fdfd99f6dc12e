import { all, deploymentIs, ejected, noPodSilenced, podSilenced, podsReady, reaches } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { echoDeployment, echoService } from '../objects.ts';

/** Written by the Deployment controller; see upstream's deployment/util. */
const REVISION = 'deployment.kubernetes.io/revision';

export const failover: Lesson = {
  name: 'failover',
  title: 'Death, roll-out and failover',
  summary: 'what happens to requests when pods end, on purpose or not',
  prepare: [echoDeployment('team', 3), echoService('team')],
  steps: [
    {
      title: 'Replace all pods',
      text: [
        'A roll-out starts a new pod, waits until it is ready, and ends an old one, until all are replaced. A pod that ends first leaves the EndpointSlices, so that no new connection goes to it. Start a roll-out and send requests meanwhile: all are answered.',
      ],
      commands: [
        'kubectl -n learn rollout restart deployment/team',
        'fairlead exec learn/client -- fairlead request http://team --count 300 --rate 50',
        'kubectl -n learn rollout status deployment/team --timeout=120s',
      ],
      predict: {
        question: 'How many of the 300 requests fail during the roll-out?',
        choices: ['none', 'about one of three'],
        answer: 0,
        why: 'A pod that ends leaves the EndpointSlices first, and still answers the connections that it has.',
      },
      expected: ['deployment.apps/team restarted', 'team-…', 'deployment "team" successfully rolled out'],
      check: all(
        deploymentIs(
          'team',
          'it has not been rolled out again',
          ({ metadata }) =>
            Number((metadata?.annotations as Record<string, string> | undefined)?.[REVISION] ?? 1) > 1,
        ),
        podsReady('team', 3),
      ),
    },
    {
      title: 'A pod that dies without notice',
      text: [
        'Silence one pod: it gets no packets, as if its machine had lost its network. It has no readiness probe, so Kubernetes does not notice. The first requests to it wait; then failover notices that its connections fail, and the node takes the endpoint out of use. Send requests until explain says that it is ejected.',
      ],
      commands: [
        'fairlead fault silent learn/{pod team}',
        'fairlead exec learn/client -- fairlead request http://team --count 60 --timeout 10000',
        'fairlead explain learn/client svc/learn/team:80 --verbose',
      ],
      predict: {
        question: 'What notices that the pod is dead?',
        choices: ['its readiness probe', 'the connections to it that fail'],
        answer: 1,
        why: 'The pod has no readiness probe: the node counts the failures of its own connections.',
      },
      expected: ['silent learn/team-…', 'team-…', '…ejected by failover…'],
      check: all(podSilenced('team'), ejected({ from: 'learn/client', to: 'svc/learn/team:80' })),
    },
    {
      title: 'Find the fault, and end it',
      text: [
        'One of three endpoints is dead. Which pod is it, and why? Trace it alone, and let explain name the reason. Then undo it: failover tries the endpoint again after a while, and uses it again if it answers.',
      ],
      commands: [
        'fairlead explain learn/client pod/learn/{pod team}:8080',
        'fairlead trace learn/client pod/learn/{pod team}:8080',
      ],
      check: all(noPodSilenced('team'), reaches('learn/client', 'svc/learn/team:80')),
      repair: { text: 'The silent pod is the planted fault.', commands: ['fairlead fault undo'] },
    },
  ],
};
