import { RESOURCES } from '../kube/types.ts';
import { LEARN_NAMESPACE, type Preparation } from './lesson.ts';

/** The objects that lessons create. The image "fairlead" is built in, and its program `fairlead echo` answers with its name. */

export const ECHO_PORT = 8080;
const namespace = LEARN_NAMESPACE;

/** A pod that only waits, so that commands can be run in it. */
export function waitingPod(name: string, spec: object = {}): Preparation {
  return {
    kind: 'create',
    resource: RESOURCES.pods,
    object: {
      metadata: { name, namespace, labels: { app: name } },
      spec: {
        terminationGracePeriodSeconds: 0,
        containers: [{ name: 'shell', image: 'fairlead', command: ['sleep', 'infinity'] }],
        ...spec,
      },
    } as object,
  };
}

/** A Deployment of servers that answer on ECHO_PORT. */
export function echoDeployment(name: string, replicas: number): Preparation {
  return {
    kind: 'create',
    resource: RESOURCES.deployments,
    object: {
      metadata: { name, namespace, labels: { app: name } },
      spec: {
        replicas,
        selector: { matchLabels: { app: name } },
        template: {
          metadata: { labels: { app: name } },
          spec: {
            terminationGracePeriodSeconds: 5,
            containers: [
              {
                name: 'echo',
                image: 'fairlead',
                command: ['fairlead', 'echo', `--port=${ECHO_PORT}`],
                ports: [{ containerPort: ECHO_PORT }],
              },
            ],
          },
        },
      },
    } as object,
  };
}

/** A Service on port 80 for the pods of a Deployment. */
export function echoService(name: string): Preparation {
  return {
    kind: 'create',
    resource: RESOURCES.services,
    object: {
      metadata: { name, namespace, labels: { app: name } },
      spec: { selector: { app: name }, ports: [{ port: 80, targetPort: ECHO_PORT }] },
    } as object,
  };
}
