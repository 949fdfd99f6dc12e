import { RESOURCES } from '../../kube/types.ts';
import { all, reaches, serviceIs } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { ECHO_PORT, echoDeployment } from '../objects.ts';

export const service: Lesson = {
  name: 'service',
  title: "A Service's address is on no interface",
  summary: 'one stable address for pods that come and go, implemented by rules alone',
  prepare: [echoDeployment('shop', 2)],
  steps: [
    {
      title: 'Create a Service',
      text: [
        'Pods come and go, and their addresses with them. A Service has one address that stays: the cluster IP. Create a Service on port 80 for the pods of the Deployment "shop", whose servers listen on port 8080, and send it some requests: both pods answer.',
      ],
      commands: [
        'kubectl -n learn expose deployment shop --port=80 --target-port=8080',
        'fairlead exec learn/client -- fairlead request http://shop --count 20',
        'kubectl -n learn get endpointslices -l kubernetes.io/service-name=shop',
      ],
      predict: {
        question: 'Which pods answer the 20 requests?',
        choices: ['one of them', 'both'],
        answer: 1,
        why: 'Each connection goes to one of the endpoints by chance, and each request here is a connection.',
      },
      expected: ['service/shop exposed', 'shop-…', 'shop-…', 'shop-…'],
      check: all(
        serviceIs('shop', 'it has no port 80', ({ spec }) =>
          (spec?.ports ?? []).some(({ port }) => port === 80),
        ),
        reaches('learn/client', 'svc/learn/shop:80'),
      ),
    },
    {
      title: 'Look for its address',
      text: [
        "No device of any node has the cluster IP, so that it answers no ping. Rules on the client's node replace it with the address of one of the pods: the first packet of a connection decides, and connection tracking remembers it for the others. The second command names the rule.",
      ],
      commands: [
        'fairlead exec {node client} -- ip address show to {cluster-ip shop}',
        'fairlead explain learn/client svc/learn/shop:80 --verbose',
        'fairlead trace learn/client svc/learn/shop:80',
      ],
      predict: {
        question: 'Which device has the cluster IP?',
        choices: ['one of the node', 'none'],
        answer: 1,
        why: 'Only rules know the address: they replace it before the packet leaves the node.',
      },
      expected: [
        'pod learn/client → svc/learn/shop:80',
        '…belongs to Service learn/shop…',
        'DELIVERED after …',
      ],
      check: null,
    },
    {
      title: 'Find the fault: connections are refused',
      text: [
        'The Service has been edited: connections to it are refused now, although its pods are ready. Trace shows who refuses, and explain what to change.',
      ],
      commands: [
        'fairlead explain learn/client svc/learn/shop:80',
        'fairlead trace learn/client svc/learn/shop:80',
      ],
      prepare: [
        {
          kind: 'patch',
          resource: RESOURCES.services,
          name: 'shop',
          patch: { spec: { ports: [{ port: 80, targetPort: 9090 }] } },
        },
      ],
      check: all(
        serviceIs('shop', `its targetPort is not ${ECHO_PORT}`, ({ spec }) =>
          (spec?.ports ?? []).some(({ port, targetPort }) => port === 80 && targetPort === ECHO_PORT),
        ),
        reaches('learn/client', 'svc/learn/shop:80'),
      ),
      repair: {
        text: "The Service's targetPort is 9090, where nothing listens.",
        commands: [
          `kubectl -n learn patch service shop -p '{"spec":{"ports":[{"port":80,"targetPort":8080}]}}'`,
        ],
      },
    },
  ],
};
