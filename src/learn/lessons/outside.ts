import { RESOURCES } from '../../kube/types.ts';
import { all, reaches, serviceIs } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { echoDeployment } from '../objects.ts';

export const outside: Lesson = {
  name: 'outside',
  title: 'Node ports and load balancers',
  summary: 'how clients outside the cluster reach a Service, and which client address the server sees',
  prepare: [echoDeployment('door', 2)],
  steps: [
    {
      title: 'A port on every node, and an address',
      text: [
        'Cluster IPs exist inside the cluster only. A Service of type NodePort also has a port on the address of every node; one of type LoadBalancer also has an address of its own, which one node announces to the network by ARP. Create one, and look at its addresses.',
      ],
      commands: [
        'kubectl -n learn expose deployment door --type=LoadBalancer --port=80 --target-port=8080',
        'kubectl -n learn get service door',
      ],
      predict: {
        question: 'At which port of the nodes can a host outside reach the Service?',
        choices: ['80', 'one from 30000 on'],
        answer: 1,
        why: 'Ports of nodes are from a range of their own, 30000 to 32767: the lower ones belong to the programs of the node.',
      },
      expected: ['service/door exposed', 'door   LoadBalancer …/TCP…'],
      check: all(
        serviceIs(
          'door',
          'it has no external address',
          ({ status }) => (status?.loadBalancer?.ingress ?? []).length > 0,
        ),
        reaches('outside', 'svc/learn/door:80'),
      ),
    },
    {
      title: 'The client address that the server sees',
      text: [
        'Reach the Service from "outside", a host beside the nodes, by the port of a node and by its own address. The node that receives the packet may send it to a pod on another node. Replies have to return through that node, so it replaces the source address: the server sees the node, not the client. With externalTrafficPolicy: Local, each node uses its own pods only, and the server sees the client. Compare what explain says before and after.',
      ],
      commands: [
        'fairlead exec outside -- fairlead request http://{node-address}:{node-port door}',
        'fairlead exec outside -- fairlead request http://{ingress door}',
        'fairlead explain outside svc/learn/door:80',
        `kubectl -n learn patch service door -p '{"spec":{"externalTrafficPolicy":"Local"}}'`,
        'fairlead explain outside svc/learn/door:80',
      ],
      predict: {
        question: 'Whom does the server see with externalTrafficPolicy: Local?',
        choices: ['the client outside', 'the node that has received the packet'],
        answer: 0,
        why: 'The packet does not leave the node again, so that its source need not be replaced.',
      },
      expected: ['door-…', 'door-…', 'DELIVERED…', 'service/door patched', 'DELIVERED…'],
      check: all(
        serviceIs(
          'door',
          'its externalTrafficPolicy is not Local',
          ({ spec }) => spec?.externalTrafficPolicy === 'Local',
        ),
        reaches('outside', 'svc/learn/door:80'),
      ),
    },
    {
      title: 'Find the fault: no answer from outside',
      text: [
        'Clients outside no longer get an answer; pods still do. Ask explain for both, and repair the Service.',
      ],
      commands: [
        'fairlead explain outside svc/learn/door:80',
        'fairlead trace outside svc/learn/door:80',
        'fairlead explain learn/client svc/learn/door:80',
      ],
      prepare: [
        {
          kind: 'patch',
          resource: RESOURCES.services,
          name: 'door',
          patch: { spec: { loadBalancerSourceRanges: ['192.0.2.0/24'] } },
        },
      ],
      check: all(
        serviceIs('door', 'only clients in 192.0.2.0/24 may use it', ({ spec }) =>
          (spec?.loadBalancerSourceRanges ?? []).every((range) => range !== '192.0.2.0/24'),
        ),
        reaches('outside', 'svc/learn/door:80'),
      ),
      repair: {
        text: 'loadBalancerSourceRanges admits clients in 192.0.2.0/24 only; others are dropped.',
        commands: [`kubectl -n learn patch service door -p '{"spec":{"loadBalancerSourceRanges":null}}'`],
      },
    },
  ],
};
