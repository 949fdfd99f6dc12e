import { RESOURCES } from '../../kube/types.ts';
import { all, everyNodeIn, reaches, serviceIs } from '../checks.ts';
import type { Lesson, Prediction, Step } from '../lesson.ts';
import { echoDeployment, echoService } from '../objects.ts';

const inMode = (mode: string, title: string, text: string, predict: Prediction): Step => ({
  title,
  text: [text],
  commands: [
    `fairlead mode ${mode}`,
    'fairlead explain learn/client svc/learn/menu:80 --verbose',
    'fairlead exec learn/client -- fairlead request http://menu --count 20',
  ],
  predict,
  expected: [`node-1: ${mode}`, '…belongs to Service learn/menu…', 'menu-…'],
  check: all(everyNodeIn(mode), reaches('learn/client', 'svc/learn/menu:80')),
});

export const modes: Lesson = {
  name: 'modes',
  title: 'The proxy in its modes, from userspace to eBPF',
  summary: 'five ways to implement the same Service, switched under traffic',
  prepare: [echoDeployment('menu', 2), echoService('menu')],
  steps: [
    inMode(
      'userspace',
      'userspace: a process in between',
      'The first proxy of Kubernetes was a process: rules redirect each connection to a port of the node, where the proxy accepts it and opens a second one to a pod. It can try another pod if one fails, but copies every byte, and the server sees the address of the node. Switch to it; connections that are open continue in the mode that accepted them.',
      {
        question: 'Whom does the server see as its client?',
        choices: ['the pod “client”', 'the node of that pod'],
        answer: 1,
        why: 'The server’s connection comes from the proxy, a process of the node.',
      },
    ),
    inMode(
      'iptables',
      'iptables: the kernel decides',
      'iptables rules let the kernel replace the address, so that no process copies bytes. The rules of a Service are a list that a packet passes one by one: with thousands of Services, the list and each change to it become long. Fairlead finds the rules of a Service in a few steps. (IPVS mode, a table of virtual servers in the kernel, needs the module ip_vs: try "fairlead mode ipvs" if your kernel has it.)',
      {
        question: 'Who copies the bytes of a connection in this mode?',
        choices: ['a process', 'the kernel alone'],
        answer: 1,
        why: 'The kernel replaces the address in each packet, so that no process is needed.',
      },
    ),
    inMode(
      'ebpf',
      'eBPF: at the socket',
      'Programs in the kernel replace the address when the process connects, before there is a packet: nothing has to be translated later. Packets that no program sees, such as those from outside, are left to a table of nftables. If your kernel cannot run it, the command says why: continue with --skip.',
      {
        question: 'Where is the address of the Service replaced?',
        choices: ['in the socket of the client', 'in the rules of the node'],
        answer: 0,
        why: 'A program at the socket replaces it when the process connects, before the first packet.',
      },
    ),
    inMode(
      'nftables',
      'nftables: tables as data',
      'nftables keeps addresses and endpoints in maps: a packet finds its Service with one lookup, and a new endpoint is one new element instead of new rules. It is the default here.',
      {
        question: 'What does a new endpoint need?',
        choices: ['new rules', 'a new element of a map'],
        answer: 1,
        why: 'The rules stay as they are: endpoints are data.',
      },
    ),
    {
      title: 'Find the fault: the same in every mode',
      text: [
        'The Service refuses connections now. The mode is not the reason: what is wrong in the objects is wrong in every mode, and explain says the same in each. Find it.',
      ],
      commands: [
        'fairlead explain learn/client svc/learn/menu:80',
        'fairlead trace learn/client svc/learn/menu:80',
      ],
      prepare: [
        {
          kind: 'patch',
          resource: RESOURCES.services,
          name: 'menu',
          patch: { spec: { selector: { app: 'mneu' } } },
        },
      ],
      check: all(
        serviceIs(
          'menu',
          'its selector is not app=menu',
          ({ spec }) => (spec?.selector as Record<string, string> | undefined)?.['app'] === 'menu',
        ),
        reaches('learn/client', 'svc/learn/menu:80'),
      ),
      repair: {
        text: 'The selector app=mneu matches no pod, so that the Service has no endpoints.',
        commands: ['kubectl -n learn set selector service menu app=menu'],
      },
    },
  ],
};
