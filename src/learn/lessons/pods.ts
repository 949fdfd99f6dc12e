import { all, podIs, podsReady, reaches, restarted } from '../checks.ts';
import type { Lesson } from '../lesson.ts';
import { waitingPod } from '../objects.ts';

const RUN_SERVER =
  'kubectl -n learn run solo --image=fairlead --labels=app=solo --command -- fairlead echo --port=8080';

export const pods: Lesson = {
  name: 'pods',
  title: 'Pods and the pause container',
  summary: 'a pod is a network namespace that outlives its containers',
  prepare: [],
  steps: [
    {
      title: 'Run a pod',
      text: [
        'A pod is one or more processes that share one network: one set of devices, one address, one loopback. Run a pod with one process, a small HTTP server, beside the pod "client", which this lesson has created.',
      ],
      commands: [RUN_SERVER, 'kubectl -n learn wait --for=condition=Ready pod/solo --timeout=60s'],
      predict: {
        question: 'How many networks does a pod with two containers have?',
        choices: ['one, which they share', 'two, one for each'],
        answer: 0,
        why: 'All containers of a pod share one network: they reach each other by 127.0.0.1.',
      },
      expected: ['pod/solo created', 'pod/solo condition met'],
      check: podsReady('solo', 1),
    },
    {
      title: 'End its process',
      text: [
        'The network belongs to a process called "pause", which the node starts before the containers and which only sleeps. Send the server a request, look at the address of the pod, end the server, and look again: the server is started again, and the address is the same, because pause has kept the network.',
      ],
      commands: [
        'fairlead exec learn/client -- fairlead request http://{address solo}:8080',
        'fairlead exec learn/solo -- ip address show eth0',
        'fairlead exec learn/solo -- sh -c "kill 1"',
        'kubectl -n learn wait --for=jsonpath="{.status.containerStatuses[0].restartCount}"=1 pod/solo --timeout=60s',
        'kubectl -n learn wait --for=condition=Ready pod/solo --timeout=60s',
        'fairlead exec learn/solo -- ip address show eth0',
      ],
      predict: {
        question: 'Which address does the pod have after its server was started again?',
        choices: ['the same', 'a new one'],
        answer: 0,
        why: 'The pause process has kept the network of the pod, and with it the address.',
      },
      expected: ['solo', 'inet …', 'pod/solo condition met', 'inet …'],
      check: restarted('solo'),
    },
    {
      title: 'Find the fault: a server that cannot be reached',
      text: [
        'The new pod "shy" should answer on port 8080 and does not, although it runs. Ask explain why, and compare it with a real packet. Then repair it: delete the pod and run it correctly.',
      ],
      commands: [
        'fairlead explain learn/client pod/learn/shy:8080',
        'fairlead trace learn/client pod/learn/shy:8080',
      ],
      prepare: [
        waitingPod('shy', {
          containers: [{ name: 'echo', image: 'fairlead', command: ['fairlead', 'echo', '--port=9090'] }],
        }),
      ],
      check: all(
        podIs('shy', 'it still listens on port 9090', ({ spec }) =>
          (spec?.containers ?? []).every(({ command }) => !command?.includes('--port=9090')),
        ),
        reaches('learn/client', 'pod/learn/shy:8080'),
      ),
      repair: {
        text: 'The server listens on port 9090, so that the pod refuses connections to 8080.',
        commands: [
          'kubectl -n learn delete pod shy',
          'kubectl -n learn run shy --image=fairlead --labels=app=shy --command -- fairlead echo --port=8080',
          'kubectl -n learn wait --for=condition=Ready pod/shy --timeout=60s',
        ],
      },
    },
  ],
};
