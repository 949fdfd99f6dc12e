import { all, podIs, reaches, serviceIs } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { echoDeployment, echoService, waitingPod } from '../objects.ts';

export const names: Lesson = {
  name: 'names',
  title: 'Names: DNS in the cluster',
  summary: 'how a short name becomes an address, and what a headless Service answers',
  prepare: [echoDeployment('book', 2), echoService('book')],
  steps: [
    {
      title: 'The search path',
      text: [
        "A pod's resolv.conf names the cluster's DNS and a search path. A name with fewer dots than ndots is tried with each domain of the path first, so that a pod in this namespace finds the Service by the word book, and one in another namespace by book.learn. Look at the file, and at the answers.",
      ],
      commands: [
        'fairlead exec learn/client -- cat /etc/resolv.conf',
        'fairlead exec learn/client -- getent hosts book',
        'fairlead explain learn/client http://book/ --verbose',
      ],
      predict: {
        question: 'Which name is asked for first, if a pod looks up “book”?',
        choices: ['book', 'book.learn.svc.cluster.local'],
        answer: 1,
        why: 'The name has fewer dots than ndots, so that the domains of the search path are tried first.',
      },
      expected: ['…nameserver …', '…book.learn.svc.cluster.local…', 'pod learn/client → http://book/'],
      check: null,
    },
    {
      title: 'A name for every pod',
      text: [
        'A headless Service (clusterIP: None) has no address of its own: its name resolves to the addresses of its pods, and the client chooses one. No rule is involved, so the port is that of the pods.',
      ],
      commands: [
        'kubectl -n learn expose deployment book --name=pages --cluster-ip=None --port=8080',
        'fairlead exec learn/client -- getent ahosts pages',
        'fairlead explain learn/client svc/learn/pages:8080',
      ],
      predict: {
        question: 'What is the answer to the name of a headless Service?',
        choices: ['one address, that of the Service', 'the addresses of its pods'],
        answer: 1,
        why: 'The Service has no cluster IP: the client chooses one of the pods.',
      },
      expected: ['service/pages exposed', '…STREAM …', 'DELIVERED…'],
      check: all(
        serviceIs('pages', 'it is not headless', ({ spec }) => spec?.clusterIP === 'None'),
        reaches('learn/client', 'svc/learn/pages:8080'),
      ),
    },
    {
      title: 'Find the fault: a pod that cannot resolve names',
      text: [
        'The new pod "lost" cannot reach http://book, although it reaches the address of the Service. Ask explain for the name, trace a packet to the address, and run the pod again correctly.',
      ],
      commands: [
        'fairlead explain learn/lost http://book/',
        'fairlead trace learn/lost {cluster-ip book}:80',
        'fairlead exec learn/lost -- cat /etc/resolv.conf',
      ],
      prepare: [waitingPod('lost', { dnsPolicy: 'Default' })],
      check: all(
        podIs('lost', 'its dnsPolicy is Default', ({ spec }) => spec?.dnsPolicy !== 'Default'),
        reaches('learn/lost', 'http://book/'),
      ),
      repair: {
        text: "With dnsPolicy: Default, the pod has the node's resolv.conf, which does not name the cluster's DNS.",
        commands: [
          'kubectl -n learn delete pod lost',
          'kubectl -n learn run lost --image=fairlead --labels=app=lost --command -- sleep infinity',
          'kubectl -n learn wait --for=condition=Ready pod/lost --timeout=60s',
        ],
      },
    },
  ],
};
