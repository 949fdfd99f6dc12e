import { all, noPodSilenced, podsReady, reaches } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { echoDeployment } from '../objects.ts';

export const bridge: Lesson = {
  name: 'bridge',
  title: 'veth and bridge: the path between pods',
  summary: 'how a packet leaves a pod, and reaches one on another node',
  prepare: [echoDeployment('pair', 2)],
  steps: [
    {
      title: 'Both ends of a cable',
      text: [
        "A veth pair is a cable with two ends. One end is eth0 in the pod's network; the other end is a device of the node, and is attached to the bridge fl0, which works like a switch. The first command shows the pod's end: the number after eth0@if is that of the other end. The second one lists what is attached to the bridge of its node.",
      ],
      commands: [
        'fairlead exec learn/client -- ip link show eth0',
        'fairlead exec {node client} -- ip link show master fl0',
        'fairlead exec {node client} -- ip address show fl0',
      ],
      predict: {
        question: 'Which devices, beside loopback, does the network of the pod have?',
        choices: ['eth0', 'eth0 and the other end of its cable'],
        answer: 0,
        why: 'The other end is a device of the node, attached to its bridge.',
      },
      expected: ['…eth0@if…', '…master fl0…', '…fl0…'],
      check: null,
    },
    {
      title: 'Follow a packet',
      text: [
        "The bridge's address is the gateway of the pods on its node. Packets to pods on the same node stay on the bridge; the others leave through the uplink, to the node that owns the address range. Follow one packet to each of the two servers, then remove one server, so that you see how a Deployment follows its number of replicas.",
      ],
      commands: [
        'fairlead exec {node client} -- ip route',
        'fairlead trace learn/client pod/learn/{pod pair}:8080',
        'fairlead trace learn/client pod/learn/{pod pair 2}:8080',
        'kubectl -n learn scale deployment pair --replicas=1',
        'kubectl -n learn wait --for=jsonpath="{.status.replicas}"=1 deployment/pair --timeout=60s',
      ],
      predict: {
        question: 'Does a packet to a pod on the same node leave through the uplink?',
        choices: ['no', 'yes'],
        answer: 0,
        why: 'The bridge knows the pods of its node; only packets to other nodes leave through the uplink.',
      },
      expected: ['…dev fl0…', 'DELIVERED after …', 'DELIVERED after …', 'deployment.apps/pair scaled'],
      check: podsReady('pair', 1),
    },
    {
      title: 'Find the fault: a pod that does not answer',
      text: [
        'The server has stopped answering. Nothing refuses the connection; the packets disappear. Trace shows the last place where a packet was seen, and explain names the reason. Repair it as explain says.',
      ],
      commands: [
        'fairlead trace learn/client pod/learn/{pod pair}:8080',
        'fairlead explain learn/client pod/learn/{pod pair}:8080',
      ],
      prepare: [{ kind: 'silence', app: 'pair' }],
      check: all(noPodSilenced('pair'), reaches('learn/client', 'deploy/learn/pair:8080')),
      repair: {
        text: 'A planted fault drops all packets that arrive at the pod.',
        commands: ['fairlead fault undo'],
      },
    },
  ],
};
